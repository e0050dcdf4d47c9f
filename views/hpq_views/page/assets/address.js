// The state of a view in the URL's fragment: #SWEEP/TRIAL?x=loss&by=p:lr
const address = {
  // { key, get, set, isOfAll }: text of what differs from the default, or nothing; what belongs to
  // all sweeps of the page stays when a link names another one
  kept: [],
  write() {
    const { d } = S, // a page of a list or of a trial has none
      trial = S.sel < 0 ? '' : `/${d.trials.n[S.sel]}`,
      words = new URLSearchParams();
    for (const { key, get } of address.kept) if (get()) words.set(key, get());
    const text = String(words);
    const hash = `${d ? d.id + trial : ''}${text && `?${text}`}`;
    history.replaceState(null, '', hash ? `#${hash}` : location.pathname);
  },
  read() {
    // the sweep and the trial that it names; other blocks take what is theirs
    const [path, text = ''] = location.hash.slice(1).split('?'),
      words = new URLSearchParams(text),
      [sid, n] = path.split('/');
    return { sid, n: +n, words };
  },
  take(words) {
    for (const { key, set, isOfAll } of address.kept)
      if (words.size || !isOfAll) set(words.get(key) ?? '');
    if (!words.size && address.kept.some(({ get, isOfAll }) => isOfAll && get())) address.write();
  },
};
// Words of a list: a space parts them, so that a space inside one is written as `~s`.
const listOf = (text) =>
  text
    .split(' ')
    .filter(Boolean)
    .map((word) => word.replace(/~[s~]/g, (two) => (two === '~s' ? ' ' : '~')));
const wordsOf = (some) =>
  some.map((word) => word.replaceAll('~', '~~').replaceAll(' ', '~s')).join(' ');
const numbersOf = (text) => {
  // two ends of a range, or nothing
  const ends = text.split('_').map(Number);
  return text && ends.length === 2 && ends.every(Number.isFinite) ? ends : null;
};
const rangeText = (ends) => (ends ? ends.map((v) => +v.toPrecision(6)).join('_') : '');
