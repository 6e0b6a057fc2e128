"""TensorBoards: what is asked for is checked, browsers get their way in, and the original wire's
views of them.
"""
