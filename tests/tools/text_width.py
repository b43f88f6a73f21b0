"""How wide a text in a picture can be: the reader's system chooses the font.

Each width is the largest of DejaVu Sans, Noto Sans, Open Sans, Lato, Roboto, Inter, Cantarell, FreeSans, and Liberation
Sans, which has the widths of Arial and Helvetica. They are in thousandths of the font size.
"""

_WIDTHS = {
    False: (
        "280 'ijl|320  ,.|340 :;I|370 f|400 ()[]t|410 !|420 r|460 \"/\\|470 -|530 s|550 z|560 *?J_c|570 L|580 `k"
        "|600 vxy|620 Faeo"
        "|640 $012356789bdghnpqu{}|650 4T|670 EPS|680 KY|690 ABVXZ|730 CR|750 U|770 HN|780 &DG|810 OQ|820 w"
        "|840 #+<=>^~×|930 M|980 m|990 %|1000 …→|1020 @|1040 W"
    ),
    True: (
        "310 '|350  ijl|380 ,.|390 I|400 :;|440 f|460 !()[]|470 -/\\|480 t|500 r|530 \"|560 _|570 *|580 J|590 z|600 cs"
        "|610 `|620 ?|640 L|650 x|660 vy|670 k|680 ae|690 EFTo|700 $0123456789|720 bdghnpqu{}|730 SYZ|740 P|760 C|770 B"
        "|780 AKRVX|820 U|830 G|840 #+<=>DHN^~×|860 OQ|880 &|930 w|1000 M→|1010 …|1020 %|1040 @|1050 m|1110 W"
    ),
}
_MONOSPACE = 0.62  # Menlo and DejaVu Sans Mono have 0.602


def _table(rows: str) -> dict[str, float]:
    pairs = (row.split(" ", 1) for row in rows.split("|"))
    return {character: int(width) / 1000 for width, characters in pairs for character in characters}


_TABLES = {bold: _table(rows) for bold, rows in _WIDTHS.items()}


def text_width(text: str, size: float, *, bold: bool = False, monospace: bool = False) -> float:
    """Return the largest width of *text* with the font size *size*. Raises KeyError for an unknown character."""
    if monospace:
        return len(text) * _MONOSPACE * size
    return sum(_TABLES[bold][character] for character in text) * size
