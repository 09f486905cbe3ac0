"""Requests that may come from a web page, or have too many headers."""

import pytest

from torl_sandbox.servers.http import refusal


@pytest.mark.parametrize(
    ("host", "origin", "address", "status"),
    [
        ("127.0.0.1:8080", None, "127.0.0.1", None),
        ("localhost", None, "127.0.0.1", None),
        ("[::1]:8080", None, "::1", None),
        (None, None, "127.0.0.1", None),
        ("localhost:8080", "http://localhost:3000", "127.0.0.1", None),
        ("localhost:8080", "http://127.0.0.1", "127.0.0.1", None),
        ("evil.example", None, "127.0.0.1", 421),
        ("evil.example:8080", "http://evil.example:8080", "127.0.0.1", 421),
        ("127.0.0.1.evil.example", None, "127.0.0.1", 421),
        ("[::1", None, "::1", 421),
        ("", None, "127.0.0.1", 421),
        ("localhost:8080", "http://evil.example", "127.0.0.1", 403),
        ("localhost:8080", "http://localhost.evil.example", "127.0.0.1", 403),
        ("localhost:8080", "null", "127.0.0.1", 403),
        ("localhost:8080", "", "127.0.0.1", 403),
        ("server.example:8080", None, "0.0.0.0", None),
        ("server.example:8080", "http://server.example:8080", "0.0.0.0", None),
        ("server.example:8080", "http://server.example", "0.0.0.0", 403),
        ("server.example:8080", "http://localhost:8080", "0.0.0.0", 403),
    ],
)
def test_a_page_of_another_site_is_refused(
    host: str | None, origin: str | None, address: str, status: int | None
) -> None:
    headers = [(name, value) for name, value in (("Host", host), ("origin", origin)) if value is not None]
    refused = refusal(headers, address)
    assert (refused and refused[0]) == status


MALFORMED = [
    "evil@{}", "evil:pass@{}", "@{}", "{}:99999", "{}:-1", "{}:http", "{}:", "{}:0080", "{}:80:80", "{}/", "{}/path",
    "{}?query", "{}#fragment", " {}", "{} ", "{}\\evil.example", "{}\t", "{},evil.example", "[{}]", "{}%00",
]  # fmt: skip


@pytest.mark.parametrize("form", MALFORMED)
@pytest.mark.parametrize(
    ("name", "address"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("localhost", "0.0.0.0")]
)
def test_malformed_origins_and_hosts_are_refused(form: str, name: str, address: str) -> None:
    wrong = form.format(name)
    for scheme in ("http://", "https://"):
        refused = refusal([("Host", name), ("Origin", scheme + wrong)], address)
        assert refused is not None, scheme + wrong
        assert refused[0] == 403
        # Not even if the host is the same.
        assert refusal([("Host", wrong), ("Origin", scheme + wrong)], address) is not None
    if address == "127.0.0.1":
        refused = refusal([("Host", wrong)], address)
        assert refused is not None
        assert refused[0] == 421


@pytest.mark.parametrize("scheme", ["", "//", "ftp://", "file://", "HTTP://", "http:", "http:///", "javascript://"])
def test_an_origin_needs_the_scheme_of_a_page(scheme: str) -> None:
    assert refusal([("Host", "localhost"), ("Origin", f"{scheme}localhost")], "127.0.0.1") is not None


@pytest.mark.parametrize("port", [":1", ":80", ":8080", ":65535", ""])
@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_pages_of_this_machine_are_accepted_on_every_port(scheme: str, name: str, port: str) -> None:
    assert refusal([("Host", "localhost:8080"), ("Origin", f"{scheme}://{name}{port}")], "127.0.0.1") is None


@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_every_header_of_a_name_is_checked(name: str) -> None:
    good, bad = {"Host": ("localhost", "evil.example"), "Origin": ("http://localhost", "http://evil.example")}[name]
    for values in ((good, bad), (bad, good)):
        assert refusal([("Host", "localhost"), *((name, value) for value in values)], "127.0.0.1") is not None


def test_more_headers_than_allowed_are_refused() -> None:
    headers = [("Host", "localhost"), *[("A", "a")] * 63]
    assert refusal(headers, "127.0.0.1") is None
    assert refusal([*headers, ("A", "a")], "127.0.0.1") == (400, "a request has at most 64 headers, got 65")
