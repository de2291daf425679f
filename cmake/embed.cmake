# embed(TEXT ID FILE...): appends to the C text in variable TEXT the bytes of the files, followed by a NUL, between the
# symbols ID and ID_end.
function(embed text id)
    list(JOIN ARGN "\\\"\\n.incbin \\\"" files)
    set(${text} "${${text}}__asm__(\".section .rodata\\n\"
        \".globl ${id}, ${id}_end\\n\"
        \".hidden ${id}, ${id}_end\\n\"
        \"${id}: .incbin \\\"${files}\\\"\\n\"
        \"${id}_end: .byte 0\\n\"
        \".text\\n\");\n" PARENT_SCOPE)
endfunction()
