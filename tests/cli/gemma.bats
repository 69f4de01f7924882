#!/usr/bin/env bats
# Gemma's kind of tokenizer and chat template, from the shell.
load helpers

setup() {
    common_setup
    mkdir "$T/m"
    cp tests/golden/gemma-tokenizer/tokenizer*.json "$T/m"
    cat >"$T/m/chat_template.jinja" <<'EOF'
{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}
EOF
}

@test "a chat by a template of Gemma's kind" {
    chat='[{"role": "user", "content": " hi there "}]'
    want=$(printf '<bos><start_of_turn>user\nhi there<end_of_turn>\n<start_of_turn>model\n.')
    [ "$(q render -m "$T/m" "$chat"; printf .)" = "$want" ]
    # control tokens, and blanks as U+2581's
    [ "$(q tokenize -m "$T/m" "<bos>hi there<end_of_turn>")" = "2 353 354 542 2114 12" ]
    # not in plain text
    [ "$(q tokenize -m "$T/m" --no-special "<bos>" | wc -w)" -gt 1 ]
}
