/* The topics of "qwick help": what several verbs share, in one page each. */
#include "base/buf.h"
#include "cli/opt/opt.h"

/* Each text ends with a newline. help.bats runs its commands: the lines that begin
 * with two blanks, except those of a table, which begin with four. */

static const char verbs_text[] =
    "Each verb has its page: qwick help VERB, which VERB --help prints, too.\n";

static const char options_text[] =
    "Options stand before or after the verb, and mean the same in all verbs. The\n"
    "first word that is neither an option nor an option's value is the verb, if it\n"
    "is the name of one; otherwise it is a prompt.\n"
    "\n"
    "  qwick -n 9 \"list files\"\n"
    "  qwick -n9 generate \"list files\"\n"
    "  qwick --max-tokens=9 -- \"- a list of files\"   # after --, all is text\n"
    "\n"
    "A value comes from the command line, else from the environment\n"
    "(QWICK_MAX_TOKENS), else from the template of -T, else from the config file.\n"
    "\n"
    "  qwick --show-config batch                     # values, and whose they are\n"
    "\n"
    "qwick help VERB has the options of a verb. Those below are shared.\n";

static const char templates_text[] =
    "A prompt template is a prompt that you use again and again. It is a file; -T\n"
    "names it, and your text takes the place of {}.\n"
    "\n"
    "  mkdir -p ~/.config/qwick/prompts\n"
    "  echo 'Say this in one sentence: {}' >~/.config/qwick/prompts/short.txt\n"
    "  qwick -T short \"tar packs files\"\n"
    "  qwick -T short <notes.txt\n"
    "  qwick batch -T short --lines <notes.txt       # each line is a text\n"
    "\n"
    "Other fields have names. --set gives each a value:\n"
    "\n"
    "  echo 'In {language}: {}' >~/.config/qwick/prompts/to.txt\n"
    "  qwick -T to --set language=French \"list files\"\n"
    "  qwick --prompt-template 'In one word: {}' \"list files\"   # without a file\n"
    "\n"
    "Lines above a line --- are options, as in the config file:\n"
    "\n"
    "  printf 'temp = 0.2\\n---\\nTag this: {}\\n' >~/.config/qwick/prompts/tag.txt\n"
    "  qwick --show-config -T tag | grep temp\n"
    "\n"
    "A chat template is something else: it is part of the model and marks who says\n"
    "what. --raw leaves it out, and render prints what it makes of a chat:\n"
    "\n"
    "  qwick render '[{\"role\":\"user\",\"content\":\"list files\"}]'\n";

static const char config_text[] =
    "The config file, ~/.config/qwick/config, has lines OPTION = VALUE with long\n"
    "names of options. A section [VERB] is for one verb.\n"
    "\n"
    "  mkdir -p ~/.config/qwick\n"
    "  echo 'max-tokens = 200' >>~/.config/qwick/config\n"
    "  printf '[batch]\\nmax-batch = 4\\n' >>~/.config/qwick/config\n"
    "  qwick --show-config batch                     # values, and whose they are\n"
    "\n"
    "The environment wins over it, and the command line over both. Scripts that\n"
    "must not depend on it ignore it:\n"
    "\n"
    "  QWICK_MAX_TOKENS=9 qwick \"list files\"\n"
    "  qwick --no-config \"list files\"\n"
    "\n"
    "Aliases are your own names of models:\n"
    "\n"
    "  qwick models alias small=Qwen/Qwen3-0.6B\n"
    "  qwick models alias\n"
    "  qwick models unalias small\n"
    "\n"
    "Options that name what one command reads or writes, such as -f and -o, are for\n"
    "the command line only. man qwick has the details.\n";

static const char scripts_text[] =
    "Only the answer goes to standard output; warnings and errors are one line each\n"
    "on standard error. A status other than 0 is a failure, and a text that --stop\n"
    "or -n cut is none: --require-answer makes it one.\n"
    "\n"
    "  text=$(qwick --timeout 60 --require-answer \"list files\") || exit\n"
    "  qwick --json \"list files\" | grep -q '\"finish_reason\":\"stop\"'\n"
    "  qwick --choices ham,spam \"You have won!\"       # exactly one of these\n"
    "  qwick choose -a ham -a spam \"You have won!\"    # and their probabilities\n"
    "  if qwick choose --yes \"is it red?\"; then echo yes; fi\n"
    "  qwick -n 99 --json-schema '{\"enum\":[1,2,3]}' \"how many?\"\n"
    "\n"
    "Many prompts are one command, which goes on where a kill ended it:\n"
    "\n"
    "  qwick batch --lines -i notes.txt -o answers.jsonl\n"
    "\n"
    "In a loop, qwick must not read the loop's standard input:\n"
    "\n"
    "  while read -r line; do qwick --no-stdin \"$line\"; done <notes.txt\n"
    "\n"
    "Exit status: 0 done, 1 failure, 2 usage, 3 model, 4 context, 5 memory,\n"
    "6 incomplete, 10 choose says no. --seed gives the same draws each time, and\n"
    "--exact the same bits with any threads and cache.\n";

static const char choosing_text[] =
    "Each token reads all weights once: a model of half the bytes is twice as fast,\n"
    "and it must fit the memory.\n"
    "\n"
    "    GB   name for qwick pull                       good for\n"
    "    0.6  Qwen/Qwen3-0.6B-GGUF:Q8_0                 short rewrites\n"
    "    1.8  Qwen/Qwen3-1.7B-GGUF:Q8_0                 questions, labels\n"
    "    2.5  Qwen/Qwen3-4B-GGUF:Q4_K_M                 most work\n"
    "    5.0  Qwen/Qwen3-8B-GGUF:Q4_K_M                 good answers\n"
    "    19   Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M            the best, fast\n"
    "\n"
    "Add 0.3 GB, and 0.1 to 0.6 GB per 4,096 tokens of context. If in doubt, take\n"
    "the third one:\n"
    "\n"
    "  qwick pull Qwen/Qwen3-4B-GGUF:Q4_K_M\n"
    "  qwick models                                  # names for -m, and speeds\n"
    "  qwick -m Qwen3-4B-Q4_K_M \"list files\"\n"
    "  qwick plan -m Qwen3-4B-Q4_K_M                 # the memory and time it needs\n"
    "\n"
    "QWICK_MODEL, or a line in the config file, makes it the default:\n"
    "\n"
    "  mkdir -p ~/.config/qwick\n"
    "  echo 'model = Qwen3-4B-Q4_K_M' >>~/.config/qwick/config\n"
    "\n"
    "Some models think before they answer. --think off saves the time; --think on\n"
    "is better for mathematics and code.\n";

const struct help_topic help_topics[] = {
    {"verbs", "the verbs, with a line each", verbs_text, help_put_verbs},
    {"options", "where options stand, and those that many verbs share", options_text,
     help_put_shared},
    {"templates", "prompts that you use again", templates_text, NULL},
    {"config", "defaults of options, and names of models", config_text, NULL},
    {"scripts", "exit statuses, labels, many prompts", scripts_text, NULL},
    {"choosing-a-model", "which model fits this machine", choosing_text, NULL},
    {NULL, NULL, NULL, NULL},
};
