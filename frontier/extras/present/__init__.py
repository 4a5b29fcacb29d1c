"""The run as one page (HTML, Markdown or JSON), and detail figures."""
