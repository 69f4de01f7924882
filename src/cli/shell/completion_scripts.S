/* The fixed parts of the completion scripts. Paths are relative to the top of
 * the source tree, where the compiler runs. */

#define EMBED(shell, path)                              \
    .globl completion_script_##shell;                   \
    .hidden completion_script_##shell;                  \
completion_script_##shell:                              \
    .incbin path;                                       \
    .globl completion_script_##shell##_end;             \
    .hidden completion_script_##shell##_end;            \
completion_script_##shell##_end:;                       \
    .byte 0

    .section .rodata

    EMBED(bash, "src/cli/shell/completion/qwick.bash")
    EMBED(zsh, "src/cli/shell/completion/qwick.zsh")
    EMBED(fish, "src/cli/shell/completion/qwick.fish")

    .section .note.GNU-stack, "", %progbits
