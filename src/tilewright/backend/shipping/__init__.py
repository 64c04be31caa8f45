"""What ships without Python: programs, objects with C headers, WebAssembly modules (``docs/emit.md``).

In: the contents of an artifact. Out: files. ``ship`` is the overview; a new form is a member of
``base.form.Form`` and a case there.

    interface         names, sizes, and the layout of a call's memory: all forms agree on it
    run_text          IR of the call; program_text: IR of a program around it; machine_code: what IR can't say
    freestanding_text C functions where there is no C library
    executable_file   a static ELF executable; relocatable_file: one ELF object; both of parsed objects
    board             executables with a clock, and the agent that gets them on a board (board_text)
    wasm_object       reads LLVM's object; wasm_module: makes a module of it; loader.js: runs it in JavaScript
"""
