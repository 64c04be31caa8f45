"""Reports: self-contained HTML pages with pictures in SVG, without external resources.

In: a database of records, or an optimized graph. Out: text of a page.

    write_page(path, "Tuning", tuning_sections(searches(records)))
    write_page(path, "Rules", superopt_sections(optimized, validation))

    history     records grouped by search           charts      line and scatter charts, by Matplotlib
    tuning      the page of a database of records   page        the HTML page
    sketches    the tree of a search's sketches     changes     differences of two graphs
    superopt    the page of an optimized graph      graphs      drawings of graphs as SVG
    layers      layers of a drawn graph             placement   horizontal positions of its vertices

A new report is a function that returns sections.
"""
