"""What ships without Python: programs, objects with C headers, WebAssembly modules, pages (``docs/emit.md``).

In: the contents of an artifact. Out: files. ``ship`` is the overview; a new form is a member of
``base.form.Form`` and a case there.

    interface         names, sizes, and the layout of a call's memory: all forms agree on it
    run_text          IR of the call, and of the functions in C; formula_text: of sizes that are known at run time only
    host_text         IR of parallel regions on the caller's threads; threads_text: on a program's own
    program_text      IR of a program around it; arguments_text: its arguments; listing_text: what it says of itself;
                      tensors_text: how its inputs come in, and outputs go out; system_text: what it asks of Linux
    machine_code      what IR can't say; freestanding_text: C functions where there is no C library
    executable_file   a static ELF executable, of parsed objects
    board             executables with a clock, and the agent that gets them on a board (board_text)
    merged            parsed objects as one; relocatable_file, coff_file, macho_file: for Linux, Windows, macOS
    wasm_object       reads LLVM's objects (wasm_numbers: their numbers); wasm_link: puts them together
    wasm_module       makes a module; wasm_threads_text: IR of its threads; loader.js: runs it in JavaScript
    page_text         an HTML file around it: page.html
"""
