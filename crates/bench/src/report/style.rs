//! Colours and layout of the page.

/// The style sheet. Colours are named once, for each of the two schemes.
pub(super) const CSS: &str = "\
:root {
  --paper: #fcfcfa; --panel: #ffffff; --text: #1d2329; --faint: #5b6670; --grid: #dfe3e6; --mark: #10151a;
  --good: #1b7f4b; --bad: #c0362c;
  --s0: #2f6fb3; --s1: #17928f; --s2: #d08a1d; --s3: #8a5aa8; --s4: #5d8a2b; --s5: #b3527b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181c; --panel: #1b2126; --text: #e4e8eb; --faint: #9aa5ae; --grid: #323a41; --mark: #10151a;
    --good: #5cc48d; --bad: #f0796d;
    --s0: #5c9fe0; --s1: #3fbdb8; --s2: #e0a546; --s3: #b48bd0; --s4: #93bf5f; --s5: #db86ab;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 940px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .5rem; letter-spacing: -.01em; }
h2 { font-size: 1.1rem; margin: 0; }
header p { margin: .2rem 0; }
section { background: var(--panel); border: 1px solid var(--grid); border-radius: 8px; margin-top: 1.25rem; padding: 1rem 1.25rem; }
section > p { margin: .1rem 0 .6rem; color: var(--faint); font-size: .9rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: system-ui, sans-serif; font-variant-numeric: tabular-nums; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
header ul { margin: .3rem 0; }
.facts { list-style: none; display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; margin: 1.1rem 0; }
.facts li { border: 1px solid var(--grid); border-radius: 99px; padding: .1rem .7rem; font-size: .85rem; background: var(--panel); }
.facts span { color: var(--faint); margin-right: .25rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; font-variant-numeric: tabular-nums; }
th { font-size: .8rem; font-weight: 600; color: var(--faint); border-bottom: 1px solid var(--faint); }
th, td { text-align: right; padding: .35rem .6rem; white-space: nowrap; }
td { border-bottom: 1px solid var(--grid); }
th.left, td.left { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
.others table { font-size: .84rem; }
.others th, .others td { padding: .35rem .4rem; }
.ours td:nth-child(5) { font-weight: 600; }
td i { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .55em; }
.failed td { color: var(--bad); }
dl { display: grid; grid-template-columns: minmax(max-content, 8.5rem) 1fr; gap: .25rem 1.2rem; margin: .6rem 0; font-size: .9rem; }
section table { width: auto; font-size: .9rem; margin: .4rem 0; }
section > p.note { color: var(--text); }
a { color: var(--s0); }
code { font-size: .95em; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: .8rem 0 .2rem; padding: .7rem .9rem; border-radius: 6px; background: var(--paper); font-size: .82rem; white-space: pre-wrap; }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{Ink, SERIES};

    #[test]
    fn every_colour_is_defined_for_both_schemes() {
        let named = [
            Ink::Text,
            Ink::Faint,
            Ink::Grid,
            Ink::Mark,
            Ink::Good,
            Ink::Bad,
            Ink::Paper,
        ];
        for ink in named.into_iter().chain((0..SERIES).map(Ink::Series)) {
            let (name, _) = ink.named();
            assert_eq!(CSS.matches(&format!("--{name}: #")).count(), 2, "{name}");
        }
    }
}
