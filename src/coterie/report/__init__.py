"""The report of `coterie report`: runs as one self-contained page.

Data is gathered in `gather.py`, drawn in `charts.py` and worded in `page.html`.
"""
