"""The example for Scrapy: a crawl of a local site that is killed and begun again."""

import collections
import http.server
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("scrapy", reason="Python: Scrapy")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PAGES = 60
CRAWL = """
import sys
import scrapy
from scrapy.crawler import CrawlerProcess

class Crawl(scrapy.Spider):
    name = "crawl"
    start_urls = [sys.argv[1] + "/0"]

    def parse(self, response):
        print("page", flush=True)
        yield from response.follow_all(css="a")

process = CrawlerProcess({
    "DUPEFILTER_CLASS": "scrapy_seen.SeenBefore",
    "CRIBA_DIR": sys.argv[2],
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 1,
    "DOWNLOAD_DELAY": float(sys.argv[3]),
    "RANDOMIZE_DOWNLOAD_DELAY": False,
})
process.crawl(Crawl)
process.start()
"""


@pytest.fixture
def site():
    """Pages that link to each other in circles; the requests for each are counted."""
    requests = collections.Counter()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests[self.path] += 1
            number = int(self.path[1:])
            links = {(number + 1) % PAGES, (number * 7 + 3) % PAGES, 0, number}
            body = "".join(f'<a href="/{link}">x</a>' for link in links).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    thread.join()
    server.server_close()


def crawl(url, seen, delay):
    command = [sys.executable, "-c", CRAWL, url, seen, str(delay)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def test_a_crawl_goes_on_after_a_kill_and_fetches_no_page_twice(site, tmp_path):
    url, requests = site
    seen = str(tmp_path / "seen")
    first = crawl(url, seen, 0.05)
    for _ in range(10):
        assert first.stdout.readline() == b"page\n"
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = dict(requests)
    assert 10 <= len(before) < PAGES

    second = crawl(url, seen, 0)
    second.communicate(timeout=60)
    assert second.returncode == 0
    # All pages but the links of one that was not parsed. They are reached by other pages, too.
    assert len(requests) == PAGES
    # Scrapy fetches the page that it starts with each time: its request passes the filter by. One page may have been
    # on its way.
    twice = [path for path, count in requests.items() if count > 1 and path != "/0"]
    assert len(twice) <= 1, twice

    third = crawl(url, seen, 0)
    third.communicate(timeout=60)
    assert sum(requests.values()) <= PAGES + 3 + len(twice)


def test_the_example_is_short():
    lines = (EXAMPLES / "scrapy_seen.py").read_text().split('"""')[2].splitlines()
    assert len([line for line in lines if line]) <= 25
