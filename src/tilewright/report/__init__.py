"""Reports: one self-contained HTML page each, with pictures in SVG; nothing is loaded from elsewhere.

In: a database of records, or an optimized graph. Out: text of a page.

    write_page(path, "Tuning", tuning_sections(searches(records)))
    write_page(path, "Rules", superopt_sections(optimized, validation))

    history     records by what was searched        charts      lines and dots, by Matplotlib
    tuning      the page of a database of records   page        HTML around it
    sketches    the tree of a search's sketches
    superopt    the page of an optimized graph      changes     where two graphs differ
    layers      vertices from top to bottom         placement   ... and from left to right
    graphs      boxes and edges, as SVG

A new report is a function that gives sections.
"""
