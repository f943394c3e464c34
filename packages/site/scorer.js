// Pages for users come before those for developers, whose headings have more of the words.
var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    score - (/^(docs\/decisions|benches|ARCHITECTURE|CHANGELOG|CONTRIBUTING|RELEASING)/.test(page) ? 20 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
