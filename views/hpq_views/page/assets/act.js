// Buttons that change the sweep: the server does what the command does, and asks what it asks.
const dialog = el('dialog'),
  said = el('p', '', { className: 'note', role: 'status', hidden: true });
dialog.setAttribute('aria-labelledby', 'asked');
document.body.append(dialog);
$('.nav').after(said);
function ask(text, yes, value, most = 0, isLong = false) {
  // resolves to the text of its input, or to undefined
  const form = el('form', '', { method: 'dialog' }),
    isQuestion = value === undefined,
    no = el('button', isQuestion ? 'No' : 'Cancel', { value: 'no' }),
    tools = el('div', '', { className: 'tools' });
  const input = el(isLong ? 'textarea' : 'input', '', {
    value: value ?? '',
    hidden: isQuestion,
    ariaLabel: text,
    maxLength: most,
  });
  tools.append(no, el('button', yes, { value: 'yes' }));
  form.append(el('p', text, { id: 'asked' }), input, tools);
  dialog.replaceChildren(form);
  input.onkeydown = (event) => {
    if (event.key !== 'Enter' || (isLong && !event.ctrlKey)) return;
    event.preventDefault(); // it would click No
    dialog.close('yes');
  };
  dialog.returnValue = '';
  dialog.showModal(); // when it closes, the browser moves the focus back
  (isQuestion ? no : input).focus();
  return new Promise((done) => {
    dialog.onclose = () => {
      if (document.activeElement === document.body) $('.acts button')?.focus();
      done(dialog.returnValue === 'yes' ? input.value : undefined);
    };
  });
}
async function act(asked) {
  said.hidden = true;
  let found = { message: 'the dashboard did not answer', code: 'out-of-reach' };
  try {
    const path = `/sweep/${S.d?.id ?? LIVE.split('/')[2]}/act?${new URLSearchParams(asked)}`,
      answer = await fetch(path, { method: 'POST' }),
      text = await answer.text(),
      isJson = answer.headers.get('content-type')?.includes('json');
    found = isJson
      ? JSON.parse(text)
      : { message: text.trim(), code: `${answer.status} ${answer.statusText}`.trim() };
  } catch {
    /* the poll says why */
  }
  const more = {
    'confirmation-missing': ['yes', 'Yes'],
    'sweep-of-another': ['force', 'Yes, with --force'],
  }[found.code];
  const text = found.message + (found.code ? ` [${found.code}]` : '');
  if (more && (await ask(more[0] === 'yes' ? found.message : text, more[1])) !== undefined)
    return act([...asked, [more[0], '']]);
  // An answer No needs no words.
  Object.assign(said, { textContent: text, hidden: more?.[0] === 'yes' });
  said.classList.toggle('done', !found.code);
  poll();
}
addEventListener('click', async (event) => {
  const button = event.target.closest('[data-verb]');
  if (!button) return;
  const { verb, key, value, most = 1000, words = '' } = button.dataset,
    text = key && (await ask(button.title, 'Save', value, +most, key === 'note'));
  if (key && text === undefined) return;
  act([
    ['verb', verb],
    ...(key
      ? [['word', `${key}=${text}`]]
      : words
          .split(' ')
          .filter(Boolean)
          .map((word) => ['word', word])),
  ]);
});
