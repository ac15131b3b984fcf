"""A duplicate filter for Scrapy that remembers over restarts and a kill what was fetched, and what is still to be. In
the settings of a project:

    DUPEFILTER_CLASS = "scrapy_seen.SeenBefore"
    CRIBA_DIR = "seen"

A new URL costs about 0.01 disk reads, whatever the number of URLs. A start reads all of them once, and fetches what was
left, with the spider's `parse`. A kill loses the links of pages that had arrived and were not parsed yet.
"""

import criba
from scrapy import Request, signals
from scrapy.dupefilters import BaseDupeFilter


class SeenBefore(BaseDupeFilter):
    @classmethod
    def from_crawler(cls, crawler):
        self = cls()
        self.crawler, self.key = crawler, crawler.request_fingerprinter.fingerprint
        crawler.signals.connect(self.resume, signals.spider_opened)
        crawler.signals.connect(self.fetched, signals.response_downloaded)
        return self

    def open(self):
        self.db = criba.open(self.crawler.settings.get("CRIBA_DIR", "seen"))
        self.left = [url.decode() for _, url in self.db.items() if url]

    def resume(self):
        for url in self.left:
            self.crawler.engine.crawl(Request(url, dont_filter=True))

    def request_seen(self, request):
        return not self.db.insert_if_absent(self.key(request), request.url)

    def fetched(self, request):
        self.db.put(self.key(request), b"")

    def close(self, reason):
        self.db.close()
