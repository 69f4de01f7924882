/* The demo model inside the binary. Paths are relative to the top of the
 * source tree, where the compiler runs. It has its own section, so that the
 * linker keeps the alignment of the weights, 4096, and pads nothing else. */

#define EMBED(id, path, align)  \
    .balign align;              \
    .globl id;                  \
    .hidden id;                 \
    .type id, %object;          \
id: .incbin path;               \
    .globl id##_end;            \
    .hidden id##_end;           \
id##_end:;                      \
    .byte 0;                    \
    .size id, . - id

    .section .rodata.builtin, "a", %progbits

    EMBED(builtin_model, "models/demo/model.safetensors", 4096)
    EMBED(builtin_config, "models/demo/config.json", 64)
    EMBED(builtin_generation_config, "models/demo/generation_config.json", 64)
    EMBED(builtin_tokenizer, "models/demo/tokenizer.json", 64)
    EMBED(builtin_tokenizer_config, "models/demo/tokenizer_config.json", 64)

    .section .note.GNU-stack, "", %progbits
