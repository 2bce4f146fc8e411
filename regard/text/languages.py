"""Languages by code.

A language has several codes: ISO 639-1 has one of two letters (de), ISO 639-2 one or two of three (deu, ger), ISO 639-3
one of three (deu), and a script or region may follow (de-AT). `primary` maps all of them alike.
"""

from __future__ import annotations

_NAMES = """
ar Arabic, cs Czech, de German, en English, es Spanish, fi Finnish, fr French, hi Hindi, it Italian, ja Japanese,
ko Korean, lzh Classical Chinese, nl Dutch, pl Polish, pt Portuguese, ro Romanian, ru Russian, sv Swedish, tr Turkish,
uk Ukrainian, vi Vietnamese, zh Chinese
"""
NAMES = {code: name for code, _, name in (entry.strip().partition(" ") for entry in _NAMES.split(","))}

_THREE_LETTERS = """
aa:aar ab:abk ae:ave af:afr ak:aka/fat/twi am:amh an:arg ar:ara/arb as:asm av:ava ay:aym/ayr az:aze/azj ba:bak
be:bel bg:bul bi:bis bm:bam bn:ben bo:bod/tib br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre/cwd cs:ces/cze cu:chu
cv:chv cy:cym/wel da:dan de:deu/ger dv:div dz:adp/dzo ee:ewe el:ell/gre en:eng eo:epo es:spa et:ekk/est eu:baq/eus
fa:fas/per/pes ff:fuc/ful fi:fin fj:fij fo:fao fr:fra/fre fy:fry ga:gle gd:gla gl:glg gn:grn/gug gu:guj/prp gv:glv
ha:hau he:heb hi:hin ho:hmo hr:hrv/scr ht:hat hu:hun hy:arm/hye hz:her ia:ina id:ind ie:ile ig:ibo ii:iii ik:esk/ipk
io:ido is:ice/isl it:ita iu:ike/iku ja:jpn jv:jav ka:geo/kat kg:kng/kon ki:kik kj:kua kk:kaz kl:kal km:khm kn:kan
ko:kor kr:kau/knc ks:kas ku:kmr/kur kv:kom/kpv kw:cor ky:kir la:lat lb:ltz lg:lug li:lim ln:lin lo:lao lt:lit lu:lub
lv:lav/lvs mg:mlg/plt mh:mah mi:mao/mri mk:mac/mkd ml:mal mn:drh/khk/mon mr:mar ms:may/msa/zsm mt:mlt my:bur/mya
na:nau nb:nob nd:nde ne:nep/npi ng:ndo nl:dut/nld nn:nno no:nor nr:nbl nv:nav ny:nya oc:oci oj:ojg/oji om:gaz/orm
or:ori/ory os:oss pa:pan pi:pli pl:pol ps:pbu/pus pt:por qu:que/quz rm:roh rn:run ro:mol/ron/rum ru:rus rw:kin
sa:cls/san sc:src/srd sd:snd se:sme sg:sag si:sin sk:slk/slo sl:slv sm:smo sn:sna so:som sq:alb/als/sqi sr:scc/srp
ss:ssw st:sot su:sun sv:swe sw:swa/swh ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso
tt:tat ty:tah ug:uig uk:ukr ur:urd uz:uzb/uzn ve:ven vi:vie vo:vol wa:wln wo:wol xh:xho yi:ydd/yid yo:yor za:zha/zyb
zh:chi/cmn/zho zu:zul
"""
"""Codes of three letters by that of two: those of ISO 639-2 (T and B) and 639-3, as CLDR lists them as aliases."""

_PRIMARY = {
    three: two for two, codes in (entry.split(":") for entry in _THREE_LETTERS.split()) for three in codes.split("/")
}

CHINESE = frozenset({"zh", "lzh", "yue", "wuu"})
"""Languages written in Chinese characters, as `primary` gives them."""


def name(code: str) -> str:
    """The English name of a language, or the code itself where no name is known."""
    return NAMES.get(code, NAMES.get(_PRIMARY.get(code, ""), code))


def primary(code: str) -> str:
    """The language alone, without region or script, by its shortest code: "zh-TW", "zho", "chi" and "cmn" are "zh"."""
    language = code.lower().replace("_", "-").partition("-")[0]
    return _PRIMARY.get(language, language)


def matches(code: str, wanted: str) -> bool:
    """Whether text in the language `code` is text in the language `wanted`: "de-AT" is in "de", but not in "de-CH"."""
    return f"{_short(code)}-".startswith(f"{_short(wanted)}-")


def _short(code: str) -> str:
    return "-".join([primary(code), *code.lower().replace("_", "-").split("-")[1:]])
