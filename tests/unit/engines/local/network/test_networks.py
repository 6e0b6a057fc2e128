"""The networks of organisations, as far as they are words and numbers; what they hold is tried
in tests/integration.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from cloud_ml.engines.local import probe as probing
from cloud_ml.engines.local.network import finding, ranges, resolvers, rules
from cloud_ml.engines.local.network.pins import Pins
from cloud_ml.engines.local.probe import probe
from cloud_ml.environments.packages.pipconfig import PipConfig
from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.settings import EngineSettings, load
from cloud_ml.settings.reachable import Reachable, parse


@pytest.mark.parametrize(
    "text", ["10.1.0.0/16", "10.2.3.4:5432", "", "10.0.0.0/8:443, 10.1.2.3", " 10.1.2.3,,"]
)
def test_what_is_opened_is_written_like_this(text: str) -> None:
    assert all(isinstance(one, Reachable) for one in parse(text))


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("network_allow", "10.1.2.3, intranet", "intranet"),
        ("network_allow", "10.1.2.3:0", "10.1.2.3:0"),
        ("network_allow", "10.1.2.3:http", "10.1.2.3:http"),
        ("network_allow", "10.1.2.3/16", "10.1.2.3/16"),
        ("network_allow", "fd00::1", "fd00::1"),
        ("network_dns", "dns.example.org", "dns.example.org"),
        ("network_range", "10.0.0.0/4", "10.0.0.0/4"),
        ("network_range", "anything", "anything"),
        ("network", "all", "all"),
    ],
)
def test_a_setting_that_is_wrong_is_named(name: str, text: str, wrong: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load(options={"engine": {name: text}})
    assert refused.value.field == f"engine.{name}"
    assert wrong in refused.value.message


def test_a_range_is_picked_that_nothing_uses() -> None:
    first = ranges.pick([IPv4Network("0.0.0.0/0")])
    assert first is not None
    second = ranges.pick([first, IPv4Network("0.0.0.0/0")])
    assert second is not None
    assert not second.overlaps(first)
    wide = [IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16")]
    assert ranges.pick(wide) is not None, "a machine in a large company"
    assert ranges.pick([*wide, IPv4Network("100.64.0.0/10")]) is None


def test_two_organisations_have_no_address_in_common() -> None:
    network = IPv4Network("10.213.0.0/28")
    lines = [ranges.line(network, slot) for slot in range(ranges.slots(network))]
    assert len({address for line in lines for address in (line.host, line.inside)}) == 16


def resolv(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_name_servers_on_loopback_are_not_for_jobs(tmp_path: Path) -> None:
    stub = resolv(
        tmp_path,
        "stub",
        "# made by systemd\nnameserver 127.0.0.53\noptions edns0\nsearch example.org\n",
    )
    behind = resolv(
        tmp_path, "behind", "nameserver 10.0.0.2\nnameserver fd00::2\nnameserver 1.1.1.1\n"
    )
    found = resolvers.find((), (stub, behind))
    assert found.servers == (IPv4Address("10.0.0.2"), IPv4Address("1.1.1.1"))
    assert (
        found.text == "nameserver 10.0.0.2\nnameserver 1.1.1.1\noptions edns0\nsearch example.org\n"
    )
    assert resolvers.find((), (stub, str(tmp_path / "absent"))).servers == ()
    assert resolvers.find(("9.9.9.9",), (stub, behind)).servers == (IPv4Address("9.9.9.9"),)


def test_a_name_server_in_a_private_range_is_open_for_names_only() -> None:
    line = ranges.line(IPv4Network("10.213.0.0/31"), 0)
    text = rules.inside(rules.Policy((IPv4Address("10.0.0.2"),)), line, [IPv4Address("192.0.2.7")])
    opened, machine, denied = (
        text.index(words) for words in ("10.0.0.2/32 } th dport 53", "@machine", "@denied")
    )
    assert opened < machine < denied, "what is opened is looked at first"
    assert "10.0.0.2" not in rules.inside(rules.Policy(), line, [])


def test_a_route_counts_where_it_leads_to_something_that_jobs_may_reach() -> None:
    private = IPv4Network("10.1.0.0/16")
    assert ranges.leads_out(IPv4Network("0.0.0.0/0"), [])
    assert ranges.leads_out(IPv4Network("192.0.2.0/24"), [])
    assert not ranges.leads_out(private, [])
    assert ranges.leads_out(private, [IPv4Network("10.1.2.3")])


def test_private_package_indexes_are_open_and_those_on_loopback_are_told() -> None:
    config = PipConfig(
        index="http://10.9.8.7:3141/simple",
        extra_indexes=("https://127.0.0.1/simple", "https://1.1.1.1/"),
    )
    allowed, missing = finding._indexes(config)
    assert allowed == ["10.9.8.7:3141"]
    assert len(missing) == 1
    assert "127.0.0.1:443" in missing[0]


@pytest.fixture
def without_nft(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a sandbox, for root, and without the firewall's program."""
    monkeypatch.setattr(probing.sandbox, "find_bwrap", lambda _: ("/usr/bin/bwrap", ""))
    monkeypatch.setattr(probing.init, "find", lambda *_: ("", ""))
    monkeypatch.setattr(finding.os, "geteuid", lambda: 0)
    monkeypatch.setattr(finding.shutil, "which", lambda _: None)


@pytest.mark.usefixtures("without_nft")
def test_a_machine_that_lacks_something_says_so_or_refuses(tmp_path: Path) -> None:
    def find(network: str) -> probing.Findings:
        settings = EngineSettings(network=network, cgroups="none")
        return probe(
            settings,
            root=tmp_path,
            environments_home=tmp_path,
            runtimes_dir=tmp_path,
            uv=Path("uv"),
        )

    found = find("auto")
    assert found.config.network.fence == "host"
    assert any(
        "share the machine's network: nft is not installed; apt install" in one
        for one in found.missing
    )
    assert not [one for one in find("none").missing if "network" in one]
    with pytest.raises(Unavailable, match="nft is not installed"):
        find("tenant")


def test_pins_of_an_interrupted_making_are_not_ready(tmp_path: Path) -> None:
    pins = Pins("one", tmp_path)
    pins.create("/somewhere")
    assert pins.take_slot(5, of=2) == 0
    pins.path(5).touch()
    pins.note_ready(5)
    assert not pins.is_ready(5), (
        "a file on which nothing is mounted, as after a restart of the machine"
    )
    assert pins.take_slot(6, of=2) == 1
    pins.forget(5)
    assert pins.slots() == {6: 1}


def test_what_forwards_for_several_servers_stops_with_the_last(tmp_path: Path) -> None:
    one, two = Pins("one", tmp_path), Pins("two", tmp_path)
    for pins in (one, two):
        pins.note_opened("eth7")
    assert one.release() == []
    assert two.release() == ["eth7"]
    assert two.opened() == []
