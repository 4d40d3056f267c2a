"""An HTML page as its reader sees it: tags, attributes, and the words that are shown."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The tags and attributes of a page, and its words: those that are shown, without pictures, code and style."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.values, self.words, self.open = set(), [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.values += [(name, value) for name, value in attrs if name != "style"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.values += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "svg", "pre", "title"} & set(self.open):
            self.words.append(data)
