"""A browser for each module, and a tab for each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from chromium import Browser, Page, open_browser


@pytest_asyncio.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest_asyncio.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A tab that must have had no error, and no request to the outside, at the end of the test."""
    async with browser.page() as opened:
        await opened.resize(1280)
        yield opened
        assert opened.errors == []
        outside = [
            url for url in opened.requests if not url.startswith(("http://127.0.0.1:", "data:", "blob:", "file:"))
        ]
        assert outside == []
