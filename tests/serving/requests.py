"""Requests that the tests send, and what plain generation answers."""

from tests.serving.conftest import MODEL_NAME


MESSAGES = [{"role": "user", "content": "Count from 3."}]
BODY = {"model": MODEL_NAME, "messages": MESSAGES}


def chat(client, content="Count from 3.", **arguments):
    messages = [{"role": "user", "content": content}]
    extra = {name: arguments.pop(name) for name in list(arguments) if name.startswith("mars_")}
    return client.chat.completions.create(
        model=MODEL_NAME, messages=messages, extra_body=extra, **{"max_tokens": 40, **arguments}
    )


def plain_answer(text_model, content, max_new_tokens=40):
    model, tokenizer = text_model
    messages = [{"role": "user", "content": content}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    ids = output[0, inputs["input_ids"].shape[1] :]
    return tokenizer.decode(ids, skip_special_tokens=True), len(ids)
