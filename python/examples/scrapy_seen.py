"""A duplicate filter for Scrapy that remembers over restarts. In the settings of a project:

    DUPEFILTER_CLASS = "scrapy_seen.SeenBefore"
    CRIBA_DIR = "seen"

A new URL costs about 0.01 disk reads, whatever the number of URLs; a URL is marked before it is fetched, so one that is
on its way at a kill is not fetched again.
"""

import criba
from scrapy.dupefilters import BaseDupeFilter


class SeenBefore(BaseDupeFilter):
    def __init__(self, path, fingerprinter):
        self.path, self.fingerprinter = path, fingerprinter

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.get("CRIBA_DIR", "seen"), crawler.request_fingerprinter)

    def open(self):
        self.db = criba.open(self.path)

    def request_seen(self, request):
        return not self.db.insert_if_absent(self.fingerprinter.fingerprint(request))

    def close(self, reason):
        self.db.close()
