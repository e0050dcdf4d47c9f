// A report: the pages of its best trials, each of which opens over the page of its sweep.
const pages = {
  isOpen: false, // of the selected trial, as in the address
  shown: '', // SWEEP/NUMBER
  // They stand at the end of the file, where they hold up neither charts nor text.
  parsed: new Promise((done) => addEventListener('DOMContentLoaded', done, { once: true })),
  wanted() {
    const n = S.d?.trials.n[S.sel];
    return pages.isOpen && S.d.pages.includes(n) ? `${S.d.id}/${n}` : '';
  },
  async mark() {
    const text = pages.wanted(),
      box = $('#page');
    if (text === pages.shown) return;
    pages.shown = text;
    if (!text) return box.close();
    await pages.parsed;
    const packed = $$('script[data-trial]').find((one) => one.dataset.trial === text),
      html = await inflate(packed);
    if (pages.shown !== text) return;
    panels.clear();
    isAtEnd = true;
    box.lastElementChild.replaceChildren(partsOf(html));
    if (!box.open) box.showModal();
    box.scrollTop = 0;
    for (const part of [...box.lastElementChild.children]) S.onPart(part);
  },
  end() {
    pages.isOpen = false;
    pages.shown = '';
    $('#page').lastElementChild.replaceChildren();
    panels.clear();
    address.write();
  },
};
S.link = (n) => (S.d.pages.includes(n) ? `#${S.d.id}/${n}?page=1` : '');
const openPage = (event) => {
  // of a link in the table, in the box of a trial, or in the winner's card
  const link = event.target.closest?.('#table a, #trial a, .winner a'),
    [sid, n] = link?.hash.slice(1).split(/[/?]/) ?? [];
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (sid !== S.d.id || !S.d.pages.includes(+n)) return;
  event.preventDefault();
  event.stopPropagation(); // a click on its row would select another trial
  pages.isOpen = true;
  const i = S.d.at_of.get(+n);
  if (i !== S.sel) return select(i);
  address.write();
  pages.mark();
};
addEventListener('click', openPage, true);
$('#page button')?.addEventListener('click', () => $('#page').close());
$('#page')?.addEventListener('close', pages.end);
address.kept.push({
  key: 'page',
  get: () => (pages.wanted() ? '1' : ''),
  set: (text) => {
    pages.isOpen = text !== '';
  },
});
S.blocks.push(pages);
