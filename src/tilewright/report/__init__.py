"""Reports: one self-contained HTML page each, with pictures in SVG; nothing is loaded from elsewhere.

In: a database of records. Out: text of a page.

    write_page(path, "Tuning", tuning_sections(searches(records)))

    history     records by what was searched        charts      lines and dots, as SVG
    tuning      the page of a database of records   page        HTML around it

A new report is a function that gives sections.
"""
