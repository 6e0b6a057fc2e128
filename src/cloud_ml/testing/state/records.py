"""Records, one at a time: made, read, changed, removed."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta, timezone
from functools import partial
from typing import Any

import pytest

from cloud_ml.domain.audit import AuditFilter
from cloud_ml.domain.records import Event, EventType
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound, StaleRevision
from cloud_ml.state import rules
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import Match
from cloud_ml.testing.state.samples import (
    FOUND,
    LATER,
    NOW,
    OTHER,
    SAMPLE,
    Phase,
    Progress,
    SampleSpec,
    commit,
    event,
    list_messages,
    make,
)

HARD_TEXTS = ["naïve 模型 🚲", "a\nb\tc", "'; DROP TABLE records; --", "%s {} \\", "\u2028"]
UNSTORABLE_TEXTS = ["half a pair \ud83d here", "a zero \x00 byte"]

LONG_TEXT = "".join(random.Random(7).choices([chr(code) for code in range(0x4E00, 0x9FFF)], k=3000))
"""No compression makes it short enough for an index of PostgreSQL."""


class RecordContract:
    def test_many_records_are_read_at_once(self, store: StateStore) -> None:
        made = [make(store, name) for name in ("a", "b")]
        other = make(store, "a", kind=OTHER)
        gone = make(store, "gone")
        store.delete(SAMPLE, gone.key.uid, fence=None)
        uids = [*(one.key.uid for one in (*made, other, gone)), "no-such-uid", *UNSTORABLE_TEXTS]
        documents = store.documents(SAMPLE, uids)
        assert {
            uid: (SAMPLE.decode_spec(spec), SAMPLE.decode_status(status))
            for uid, (spec, status) in documents.items()
        } == {one.key.uid: (one.spec, one.status) for one in made}
        assert store.documents(SAMPLE, []) == {}

    def test_create_returns_what_get_and_find_return(self, store: StateStore) -> None:
        made = make(
            store,
            spec=SampleSpec("a bike", 3, {"colour": "red"}),
            status=Progress(Phase.BUSY, "n", NOW),
        )
        assert store.get(SAMPLE, made.key.uid) == made
        assert store.find(SAMPLE, "red", "one") == made
        assert (made.key.kind, made.key.org, made.key.name, made.owner) == (
            "wish",
            "red",
            "one",
            "ann",
        )
        assert (made.generation, made.created_at, made.updated_at) == (1, NOW, NOW)
        assert made.spec == SampleSpec("a bike", 3, {"colour": "red"})
        assert made.status == Progress(Phase.BUSY, "n", NOW)
        assert made.delete_requested_at is None

    def test_what_is_absent_is_none(self, store: StateStore) -> None:
        make(store)
        assert store.get(SAMPLE, "nobody") is None
        assert store.find(SAMPLE, "red", "two") is None
        assert store.find(SAMPLE, "blue", "one") is None

    def test_a_record_is_not_found_under_another_kind(self, store: StateStore) -> None:
        made = make(store)
        assert store.get(OTHER, made.key.uid) is None
        assert store.find(OTHER, "red", "one") is None
        with pytest.raises(NotFound):
            store.request_delete(OTHER, made.key.uid, now=LATER)
        with pytest.raises(StaleRevision):
            store.commit_status(
                OTHER,
                made.key.uid,
                Progress(),
                expected_revision=made.revision,
                fence=None,
                now=LATER,
            )
        store.delete(OTHER, made.key.uid, fence=None)
        assert store.get(SAMPLE, made.key.uid) == made

    @pytest.mark.parametrize("text", HARD_TEXTS)
    def test_texts_come_back_as_they_were(self, store: StateStore, text: str) -> None:
        made = make(
            store, text, org=text, owner=text, title=text, spec=SampleSpec(text, tags={text: text})
        )
        store.add_event(made.key.uid, event(text))
        assert store.find(SAMPLE, text, text) == made
        assert made.spec.tags == {text: text}
        assert store.list(SAMPLE, org=text).items[0].title == text
        assert list_messages(store, made) == [text]

    @pytest.mark.parametrize("text", UNSTORABLE_TEXTS)
    def test_a_sentence_is_written_whatever_it_quotes(self, store: StateStore, text: str) -> None:
        made = make(store, events=[event(text)], title=text, spec=SampleSpec(text))
        (written,) = list_messages(store, made)
        assert written.split()[0] == text.split(maxsplit=1)[0]
        assert written.split()[-1] == text.rsplit(maxsplit=1)[-1]
        assert made.spec.text == text

    def test_times_are_moments_not_notations(self, store: StateStore) -> None:
        elsewhere = NOW.astimezone(timezone(timedelta(hours=8)))
        assert make(store, now=elsewhere).created_at == NOW

    def test_a_value_of_the_wrong_type_is_not_written(self, store: StateStore) -> None:
        with pytest.raises(InvalidRequest):
            make(store, spec=SampleSpec("a bike", count="many"))  # type: ignore[arg-type]
        assert store.find(SAMPLE, "red", "one") is None

    def test_names_are_unique_among_the_living_of_a_kind_and_an_organisation(
        self, store: StateStore
    ) -> None:
        made = make(store)
        make(store, org="blue")
        make(store, kind=OTHER)
        with pytest.raises(AlreadyExists):
            make(store)
        store.delete(SAMPLE, made.key.uid, fence=None)
        assert make(store).key.uid != made.key.uid

    def test_a_name_that_is_taken_tells_whether_the_same_was_asked_for(
        self, store: StateStore
    ) -> None:
        make(store)
        with pytest.raises(AlreadyExists) as same:
            make(store)
        with pytest.raises(AlreadyExists) as different:
            make(store, spec=SampleSpec("a boat"))
        assert (same.value.same_spec, different.value.same_spec) == (True, False)

    def test_what_was_refused_leaves_no_trace(self, store: StateStore) -> None:
        made = make(store)
        before = store.revision()
        with pytest.raises(AlreadyExists):
            make(store, events=[event("refused")])
        with pytest.raises(StaleRevision):
            commit(store, made, expected_revision=made.revision + 1, events=[event("refused")])
        assert store.revision() == before
        assert store.changes(before) == ()
        assert list_messages(store, made) == []
        assert store.get(SAMPLE, made.key.uid) == made

    def test_change_spec_raises_the_generation(self, store: StateStore) -> None:
        made = make(store)
        changed = store.change_spec(
            SAMPLE,
            made.key.uid,
            lambda spec: replace(spec, count=spec.count + 1),
            now=LATER,
            events=[event("more")],
        )
        assert changed == replace(
            made,
            spec=SampleSpec("a bike", 2),
            generation=2,
            revision=changed.revision,
            updated_at=LATER,
        )
        assert changed.revision > made.revision
        assert store.get(SAMPLE, made.key.uid) == changed
        assert list_messages(store, made) == ["more"]

    def test_change_spec_that_changes_nothing_writes_nothing(self, store: StateStore) -> None:
        made = make(store)
        same = store.change_spec(
            SAMPLE, made.key.uid, lambda _: SampleSpec("a bike"), now=LATER, events=[event("more")]
        )
        assert same == made
        assert store.revision() == made.revision
        assert list_messages(store, made) == []

    def test_change_spec_that_raises_changes_nothing(self, store: StateStore) -> None:
        made = make(store)

        def refuse(_: SampleSpec) -> SampleSpec:
            raise InvalidRequest("no")

        with pytest.raises(InvalidRequest, match="no"):
            store.change_spec(SAMPLE, made.key.uid, refuse, now=LATER)
        assert store.get(SAMPLE, made.key.uid) == made

    def test_a_spec_changes_by_the_status(self, store: StateStore) -> None:
        made = make(store, status=Progress(Phase.BUSY, "n", NOW))

        def add(record: Any) -> Any:
            count = 3 if record.status.phase is Phase.BUSY else 2
            return replace(record.spec, count=count), [event(f"{count} of {record.key.name}")]

        changed = store.change_spec_of_record(SAMPLE, made.key.uid, add, now=LATER)
        assert (changed.spec.count, changed.generation, changed.status) == (3, 2, made.status)
        assert store.get(SAMPLE, made.key.uid) == changed
        again = store.change_spec_of_record(SAMPLE, made.key.uid, add, now=LATER)
        assert again == changed, "nothing has changed"
        assert list_messages(store, made) == [f"3 of {made.key.name}"]
        with pytest.raises(NotFound):
            store.change_spec_of_record(SAMPLE, "nobody", add, now=NOW)

    def test_change_spec_and_request_delete_of_nothing(self, store: StateStore) -> None:
        with pytest.raises(NotFound):
            store.change_spec(SAMPLE, "nobody", lambda spec: spec, now=NOW)
        with pytest.raises(NotFound):
            store.request_delete(SAMPLE, "nobody", now=NOW)

    def test_request_delete_marks_once(self, store: StateStore) -> None:
        made = make(store)
        marked = store.request_delete(SAMPLE, made.key.uid, now=LATER, events=[event("bye")])
        assert marked.delete_requested_at == LATER
        assert marked.revision > made.revision
        assert marked.generation == made.generation
        again = store.request_delete(
            SAMPLE, made.key.uid, now=LATER + timedelta(hours=1), events=[event("bye")]
        )
        assert again == marked == store.get(SAMPLE, made.key.uid)
        assert list_messages(store, made) == ["bye"]
        assert store.list(SAMPLE).items[0].deleting

    def test_commit_status_writes_status_and_events(self, store: StateStore) -> None:
        made = make(store)
        done = commit(store, made, Phase.DONE, events=[event("done")])
        assert done == replace(
            made, status=Progress(Phase.DONE), revision=done.revision, updated_at=LATER
        )
        assert done.revision > made.revision
        assert store.get(SAMPLE, made.key.uid) == done
        assert list_messages(store, made) == ["done"]

    def test_commit_status_on_a_record_that_moved_on_or_is_gone(self, store: StateStore) -> None:
        made = make(store)
        commit(store, made)
        with pytest.raises(StaleRevision):
            commit(store, made)
        store.delete(SAMPLE, made.key.uid, fence=None)
        with pytest.raises(StaleRevision):
            commit(store, made)

    def test_delete_removes_record_and_events_and_is_idempotent(self, store: StateStore) -> None:
        made = make(store, events=[event("hello")])
        store.delete(SAMPLE, made.key.uid, fence=None)
        before = store.revision()
        store.delete(SAMPLE, made.key.uid, fence=None)
        assert store.get(SAMPLE, made.key.uid) is None
        assert store.find(SAMPLE, "red", "one") is None
        assert store.events(made.key.uid) == ()
        assert store.list(SAMPLE).items == ()
        assert store.revision() == before

    def test_events_keep_their_order_and_are_paged_by_id(self, store: StateStore) -> None:
        made = make(store, events=[event("1"), event("2")])
        other = make(store, "two", events=[event("another's")])
        store.add_event(
            made.key.uid, Event(NOW - timedelta(days=1), "Late", "3", EventType.WARNING)
        )
        commit(store, made, events=[event("4"), event("5")])
        written = store.events(made.key.uid)
        assert [each.message for each in written] == ["1", "2", "3", "4", "5"]
        assert [each.id for each in written] == sorted({each.id for each in written})
        assert replace(written[2], id=0) == Event(
            NOW - timedelta(days=1), "Late", "3", EventType.WARNING
        )
        assert store.events(made.key.uid, after=written[1].id, limit=2) == written[2:4]
        assert list_messages(store, other) == ["another's"]

    def test_a_record_keeps_its_newest_events_only(self, store: StateStore) -> None:
        """A record that is changed again and again does not fill the database, and its last
        events can be read.
        """
        most = rules.RETENTION.record_events
        made = make(store, events=[event("first")])
        other = make(store, "two", events=[event("another's")])
        made = commit(store, made, events=[event(str(number)) for number in range(most)])
        assert [list_messages(store, made)[at] for at in (0, -1)] == ["0", str(most - 1)]
        store.change_spec(
            SAMPLE,
            made.key.uid,
            lambda _: SampleSpec("a boat"),
            now=LATER,
            events=[event("changed")],
        )
        store.add_event(made.key.uid, event("by the way"))
        store.request_delete(SAMPLE, made.key.uid, now=LATER, events=[event("bye")])
        kept = list_messages(store, made)
        assert len(kept) == most
        assert (kept[0], kept[-3:]) == ("3", ["changed", "by the way", "bye"])
        assert list_messages(store, other) == ["another's"]

    def test_an_event_leaves_the_revision_alone(self, store: StateStore) -> None:
        made = make(store)
        store.add_event(made.key.uid, event("by the way"))
        assert store.get(SAMPLE, made.key.uid) == made
        commit(store, made)

    def test_an_event_of_a_record_that_is_gone_is_dropped(self, store: StateStore) -> None:
        made = make(store)
        store.delete(SAMPLE, made.key.uid, fence=None)
        store.add_event(made.key.uid, event("too late"))
        assert store.events(made.key.uid) == ()

    @pytest.mark.parametrize("text", UNSTORABLE_TEXTS)
    def test_what_cannot_be_stored_is_not_there(self, store: StateStore, text: str) -> None:
        """Names come from addresses of requests, so anything may be asked for."""
        make(store)
        assert store.get(SAMPLE, text) is None
        assert store.find(SAMPLE, text, "one") is None
        assert store.find(SAMPLE, "red", text) is None
        for match in (Match(name=text), Match(prefix=text), Match(owner=text), Match(tags=(text,))):
            assert list(store.list(SAMPLE, match=match).items) == []
        assert list(store.list(SAMPLE, org=text).items) == []
        assert list(store.events(text)) == []
        for name in ("org", "user", "key", "operation", "target", "outcome"):
            fields: dict[str, Any] = {name: text}
            assert list(store.audit(AuditFilter(**fields)).items) == []

    def test_a_record_gets_another_name(self, store: StateStore) -> None:
        made = make(store, events=[event("made")])
        other, last = make(store, "two"), store.revision()
        renamed = store.rename(SAMPLE, made.key.uid, "three", now=LATER)
        assert renamed.key == replace(made.key, name="three")
        assert (renamed.spec, renamed.created_at) == (made.spec, made.created_at)
        assert (renamed.revision > last, renamed.updated_at) == (True, LATER)
        assert store.find(SAMPLE, made.key.org, "one") is None
        assert store.find(SAMPLE, made.key.org, "three") == renamed
        assert len(store.events(made.key.uid)) == 1
        assert store.rename(SAMPLE, made.key.uid, "three", now=NOW) == renamed
        assert make(store, "one").key.uid != made.key.uid
        with pytest.raises(AlreadyExists):
            store.rename(SAMPLE, made.key.uid, "two", now=LATER)
        with pytest.raises(NotFound):
            store.rename(OTHER, other.key.uid, "four", now=LATER)
        with pytest.raises(InvalidRequest, match="name"):
            store.rename(SAMPLE, made.key.uid, LONG_TEXT, now=LATER)
        assert store.find(SAMPLE, made.key.org, "two") == other

    @pytest.mark.parametrize("field", ["org", "name", "owner"])
    @pytest.mark.parametrize("text", [*UNSTORABLE_TEXTS, LONG_TEXT])
    def test_a_name_that_cannot_be_stored_is_refused(
        self, store: StateStore, field: str, text: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=field):
            _make_with(store, field, text)
        assert list(store.list(SAMPLE).items) == []

    def test_a_tag_that_no_index_takes_is_refused(self, store: StateStore) -> None:
        made = make(store, kind=FOUND)
        for text in (LONG_TEXT, LONG_TEXT[:790]):
            spec = SampleSpec("a bike", tags={"colour": text})
            if len(text.encode()) > 2400:
                with pytest.raises(InvalidRequest, match="colour"):
                    make(store, "two", kind=FOUND, spec=spec)
                with pytest.raises(InvalidRequest, match="colour"):
                    store.change_spec(FOUND, made.key.uid, partial(_second, spec), now=LATER)
            else:
                make(store, "two", kind=FOUND, spec=spec)
                assert len(store.list(FOUND, match=Match(tags=(f"colour={text}",))).items) == 1


def _make_with(store: StateStore, field: str, text: str) -> None:
    names: dict[str, Any] = {"name": "one", field: text}
    make(store, **names)


def _second(spec: SampleSpec, _: SampleSpec) -> SampleSpec:
    return spec
