#include "text/chat/think.h"

#include <stddef.h>

const struct think_tags think_tags[N_THINK_TAGS] = {
    {"<think>", "</think>", NULL},
    {"<thinking>", "</thinking>", NULL},
    {"<thought>", "</thought>", NULL},
    {"<reasoning>", "</reasoning>", NULL},
    {"[THINK]", "[/THINK]", NULL},
    {"<seed:think>", "</seed:think>", NULL},
    {"<|START_THINKING|>", "<|END_THINKING|>", NULL},
    {"<|channel>", "<channel|>", "thought"},
    {"<|channel|>analysis<|message|>", "<|end|>", NULL},
};
