"""Names from before TensorFlow 1.0, as functions of what replaced them."""

RENAMED = {
    "all_variables": "global_variables",
    "batch_matmul": "matmul",
    "complex_abs": "abs",
    "initialize_all_tables": "tables_initializer",
    "initialize_all_variables": "global_variables_initializer",
    "initialize_local_variables": "local_variables_initializer",
    "initialize_variables": "variables_initializer",
    "inv": "reciprocal",
    "merge_all_summaries": "summary.merge_all",
    "merge_summary": "summary.merge",
    "mul": "multiply",
    "neg": "negative",
    "pack": "stack",
    "select": "where",
    "sub": "subtract",
    "unpack": "unstack",
}


def apply(tensorflow):
    """Add the old names where they are free."""
    for old, new in RENAMED.items():
        if not hasattr(tensorflow, old):
            setattr(tensorflow, old, _resolve_dotted(tensorflow, new))
    _train(tensorflow)
    _summaries(tensorflow)
    _argument_order(tensorflow)


def _resolve_dotted(thing, path):
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


def _train(tensorflow):
    if not hasattr(tensorflow.train, "SummaryWriter"):
        tensorflow.train.SummaryWriter = tensorflow.summary.FileWriter


def _summaries(tensorflow):
    """``scalar_summary(tags, values)`` and its like took the tag where a name is given today."""

    def scalar_summary(tags, values, collections=None, name=None):
        return tensorflow.summary.scalar(name or _tag(tags), values, collections)

    def histogram_summary(tag, values, collections=None, name=None):
        return tensorflow.summary.histogram(name or _tag(tag), values, collections)

    def image_summary(tag, tensor, max_images=3, collections=None, name=None):
        return tensorflow.summary.image(name or _tag(tag), tensor, max_images, collections)

    for function in (scalar_summary, histogram_summary, image_summary):
        if not hasattr(tensorflow, function.__name__):
            setattr(tensorflow, function.__name__, function)


def _tag(tag):
    return str(tag).replace(" ", "_")


def _argument_order(tensorflow):
    """``concat(dim, values)`` became ``concat(values, axis)`` in 1.0; an integer in front tells
    the old one.
    """
    today = tensorflow.concat

    def concat(values=None, axis=None, name="concat", concat_dim=None):
        if isinstance(values, int) and not isinstance(axis, int):
            values, axis = axis, values
        return today(values, concat_dim if axis is None else axis, name=name)

    tensorflow.concat = concat
