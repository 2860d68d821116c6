"""Small corpora in the formats and layouts of IWSLT, NIST and the Linguistic Data Consortium."""

import io
import tarfile
import zipfile

WORDS = {
    "de": ["Haus", "Baum", "Katze", "schön", "groß", "läuft", "über", "Straße", "heute", "niemals", "Wasser", "Brücke"],
    "en": [
        "house",
        "tree",
        "cat",
        "beautiful",
        "large",
        "runs",
        "across",
        "street",
        "today",
        "never",
        "water",
        "bridge",
    ],
    "ro": [
        "casă",
        "copac",
        "pisică",
        "frumos",
        "mare",
        "aleargă",
        "peste",
        "stradă",
        "astăzi",
        "niciodată",
        "apă",
        "pod",
    ],
    "es": ["casa", "árbol", "gato", "hermoso", "grande", "corre", "sobre", "calle", "hoy", "nunca", "agua", "puente"],
    "fr": ["maison", "arbre", "chat", "beau", "grand", "court", "sur", "rue", "aujourd'hui", "jamais", "eau", "pont"],
    "vi": ["nhà", "cây", "mèo", "đẹp", "lớn", "chạy", "qua", "đường", "hôm_nay", "không_bao_giờ", "nước", "cầu"],
    "zh": ["房子", "树木", "小猫", "美丽", "巨大", "奔跑", "穿过", "街道", "今天", "从不", "流水", "桥梁"],
    "zh-Hant": ["房子", "樹木", "小貓", "美麗", "巨大", "奔跑", "穿過", "街道", "今天", "從不", "流水", "橋樑"],
}


def sentence(language, number):
    """Returns sentence ``number`` (4 to 8 words and the number), with the same content in every language."""
    words = [WORDS[language][(number * 7 + 5 * i) % 12] for i in range(4 + number % 5)]
    if language.startswith("zh"):
        return "".join(words) + f"{number}。"
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}, {number}."


def train_tags(language, talks=2, lines=40, translated=False):
    """Yields the lines of ``train.tags.X-Y.LANGUAGE``; with ``translated``, they name a translator."""
    number = 0
    for talk in range(talks):
        yield f"<url>http://www.ted.com/talks/{talk}</url>"
        yield f"<keywords>talks, {language}</keywords>"
        yield f"<speaker>Speaker {talk}</speaker>"
        if translated:
            yield f'<translator href="http://www.ted.com/{talk}">Somebody</translator>'
        yield f"<talkid>{talk}</talkid>"
        yield f"<title>{sentence(language, 900 + talk)}</title>"
        yield f"<description>TED Talk: {sentence(language, 950 + talk)}</description>"
        for _ in range(lines):
            number += 1
            yield f"{sentence(language, number)} "


def evaluation_xml(language, side, name="IWSLT14.TED.dev2010", docs=2, segments=3, start=500):
    """Returns an evaluation set in WIT3's XML format; ``side`` is ``src`` or ``ref``."""
    attributes = f'setid="{name}" srclang="{language}"' + (f' trglang="{language}"' if side == "ref" else "")
    rows = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", f"<{side}set {attributes}>"]
    for doc in range(docs):
        rows += [
            f'<doc docid="{doc + 1:04}" genre="lectures">',
            "<keywords>talks</keywords>",
            f"<talkid>{doc}</talkid>",
        ]
        rows += [f"<title>{sentence(language, doc)}</title>"]
        for i in range(segments):
            rows.append(f'<seg id="{i + 1}"> {sentence(language, start + doc * segments + i)} </seg>')
        rows.append("</doc>")
    return "\n".join([*rows, f"</{side}set>", "</mteval>", ""])


def wit3(pair, sets, campaign="IWSLT14", prefix="", **training):
    """Returns the files of a WIT3 language pair (name -> text); ``training`` goes to ``train_tags``."""
    languages, files = pair.split("-"), {}
    for number, language in enumerate(languages):
        lines = train_tags(language, translated=bool(number), **training)
        files[f"{prefix}train.tags.{pair}.{language}"] = "".join(f"{line}\n" for line in lines)
        for i, name in enumerate(sets):
            text = evaluation_xml(language, "ref" if number else "src", f"{campaign}.{name}", start=100 * i + 500)
            files[f"{prefix}{campaign}.{name}.{pair}.{language}.xml"] = text
    return files


def lines_of(language, count, start=0):
    return "".join(f"{sentence(language, start + i)}\n" for i in range(count))


def sgml(language, kind, systems=("",), docs=2, segments=3, setid="mt", encoding="utf-8", start=0):
    """Returns an evaluation set in NIST's SGML: unquoted ids, tags in capitals, segments over several lines."""
    rows = [] if encoding == "utf-8" else [f'<?xml version="1.0" encoding="{encoding}"?>']
    target = ' trglang="English"' if kind == "refset" else ""
    rows.append(f'<{kind} setid="{setid}" srclang="Chinese"{target}>')
    for system in systems:
        for doc in range(docs):
            sysid = f' sysid="{system}"' if system else ""
            rows.append(f'<DOC docid="AFC{doc}"{sysid}>')
            for i in range(segments):
                number = start + doc * segments + i
                text = sentence(language, number) + (f" ({system})" if system else "")
                rows.append(f"<p>\n<seg id={i + 1}>\n{text}\n</seg>\n</p>")
            rows.append("</DOC>")
    return "\n".join([*rows, f"</{kind}>", ""]).encode(encoding)


def nist_test_sets(folder=True):
    """Returns the files of MT02 to MT06: with ``folder``, odd years are SGML in folders, the others plain text."""
    files = {}
    for year in range(2, 7):
        name, start = f"mt0{year}", 300 + 10 * year
        if folder and year % 2:
            files[f"{name}/{name}_src.sgm"] = sgml("zh", "srcset", encoding="gb18030", start=start)
            systems = ("ahd", "ahe", "ahg", "ahi")
            files[f"{name}/{name}_ref.sgm"] = sgml("en", "refset", systems, start=start)
        else:
            files[f"{name}.zh"] = lines_of("zh", 5, start)
            files.update({f"{name}.en{i}": lines_of("en", 5, start) for i in range(4)})
    return files


def ldc_corpora():
    """Returns the files of the seven training corpora in folders like those of the Consortium."""
    files = {}
    for number in ("LDC2002T01", "LDC2003T17", "LDC2004T07"):
        files[f"{number}/mt_chinese/source/AFC01.sgm"] = sgml("zh", "srcset", encoding="gb18030", docs=1, segments=4)
        for translator in ("E01", "E02"):
            files[f"{number}/mt_chinese/translation/{translator}/AFC01.sgm"] = sgml("en", "refset", docs=1, segments=4)
        files[f"{number}/readme.txt"] = "About."
    files["LDC2000T50/hansards/chinese/h1.txt"] = lines_of("zh-Hant", 20).encode("big5")
    files["LDC2000T50/hansards/english/h1.txt"] = lines_of("en", 20)
    files["LDC2002E18/data/news.zh"] = lines_of("zh", 15, 40).encode("gb18030")
    files["LDC2002E18/data/news.en"] = lines_of("en", 15, 40)
    files["LDC2003E07/ctb.chn.gz"] = compressed(lines_of("zh", 10, 60))
    files["LDC2003E07/ctb.eng.gz"] = compressed(lines_of("en", 10, 60))
    files["LDC2003E14/FBIS/Chinese/a.txt"] = lines_of("zh", 12, 80)
    files["LDC2003E14/FBIS/English/a.txt"] = lines_of("en", 12, 80)
    return files


def compressed(text):
    import gzip

    return gzip.compress(text.encode())


def write(directory, files):
    """Writes files (name -> text or bytes) below a directory."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tar(files, mode="w:gz"):
    """Returns the bytes of a tar archive of files (name -> text or bytes)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()
