"""Where a tenant's URL may lead."""

from __future__ import annotations

import re

import pytest

from cloud_ml.fetching.addresses import Allowed, refusal

NOTHING = Allowed()


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8"]
)
def test_the_open_internet_may_be_reached(address: str) -> None:
    assert refusal("example.com", address, NOTHING) is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::127.0.0.1", "form of another"),
        ("2002:7f00:1::", "form of another"),
        ("2002:a9fe:a9fe::1", "form of another"),
        ("2001:0:53aa:64c:0:7fff:56ff:fefe", "form of another"),
        ("64:ff9b::7f00:1", "form of another"),
        ("64:ff9b:1::a00:1", "form of another"),
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("198.18.0.1", "private"),
        ("192.0.2.1", "private"),
        ("240.0.0.1", "private"),
        ("255.255.255.255", "private"),
        ("fc00::1", "private"),
        ("fec0::1", "private"),
        ("2001:db8::1", "private"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("192.0.0.8", "private"),
        ("192.88.99.1", "private"),
        ("3fff::1", "private"),
        ("4000::1", "private"),
        ("::ffff:0:7f00:1", "private"),
        ("2600::5efe:7f00:1", "IPv6 form of another address"),
        ("2600::200:5efe:10.0.0.1", "IPv6 form of another address"),
    ],
)
def test_everything_inside_is_refused(address: str, why: str) -> None:
    assert why in str(refusal("example.com", address, NOTHING))


def test_an_operator_allows_hosts_addresses_and_ranges() -> None:
    allowed = Allowed.parse(
        ["Packages.Example.com", "10.1.0.0/16", " 192.168.1.5 ", "fd00::/8", ""]
    )
    assert refusal("packages.example.com.", "10.9.9.9", allowed) is None
    assert refusal("other", "10.1.2.3", allowed) is None
    assert refusal("other", "::ffff:10.1.2.3", allowed) is None
    assert refusal("other", "fd00::1", allowed) is None
    assert refusal("other", "192.168.1.6", allowed) is not None
    assert refusal("other", "10.2.0.1", allowed) is not None


@pytest.mark.parametrize("word", ["10.0.0.0/33", "10.0.0.1/8", "a b", "http://x", "300.1.1.1", "*"])
def test_what_is_no_host_and_no_range_is_told(word: str) -> None:
    with pytest.raises(ValueError, match=re.escape(word)):
        Allowed.parse([word])
