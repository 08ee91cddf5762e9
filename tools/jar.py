"""The jar of the catalog: `scala/` compiled to `src/replitree/spark/jars/replitree-spark.jar` by the compiler inside PySpark.

PySpark's jars have the whole Scala compiler, so this needs a Java that runs and neither a JDK nor a network.  The jar has the
digest of what it was made from, and is made again only when that has changed.  The same sources give the same bytes: entries
are sorted and have one time.

It runs in the Python that has PySpark: `make setup` and the build hook (`tools/hatch_jar.py`) start it there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "scala"
JAR = ROOT / "src" / "replitree" / "spark" / "jars" / "replitree-spark.jar"
DIGEST = "META-INF/replitree.sha256"
COMPILER = ("scala-compiler", "scala-library", "scala-reflect")
BYTES_MAX = 100_000
"""The wheel carries the jar, and every session of Spark loads it."""

UTF8 = 1
CONSTANT_BYTES = {
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 5),
    **dict.fromkeys((5, 6), 9),
    **dict.fromkeys((7, 8, 16, 19, 20), 3),
    15: 4,
}
"""Bytes of each kind of constant in a class file, by its tag; a text (`UTF8`) says its own (Java VM specification 4.4)."""

TEXTS_NAMED = {**dict.fromkeys((7, 8, 16, 19, 20), 1), 12: 2}
"""How many texts a constant names, by its tag: of a class, a string, a name with its type, a type of methods, a module."""

TWO_NUMBERS = (5, 6)
"""Kinds of constants that take two numbers: long and double."""

LEFT_OUT = frozenset(
    {b"RuntimeVisibleAnnotations", b"Scala", b"ScalaInlineInfo", b"ScalaSig"}
    | {b"InnerClasses", b"LocalVariableTable", b"MethodParameters"}
)
"""Attributes with types for compilers, hints for Scala's optimizer, the nesting of classes, and names of variables."""

KEPT = frozenset(
    {b"BootstrapMethods", b"Code", b"ConstantValue", b"Exceptions", b"LineNumberTable", b"SourceFile", b"StackMapTable"}
)
"""Attributes that the JVM and its stack traces need; of texts, only `SourceFile` names one itself."""

READS_FUNCTIONS = b"$deserializeLambda$"
"""A method of every class with functions: Java calls it for one that another process has sent, and the catalog sends none."""

ENTRY = "io/replitree/spark/Links.class"
"""The one class whose static methods are called: by Python, and by Java when it starts."""

SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
"""Names the class that Spark takes for ``format("replitree")``."""

TIME = (1980, 1, 1, 0, 0, 0)
"""Of every entry: the earliest that a zip file can say."""


class JarError(Exception):
    """The jar can't be made; the message says what to do."""


def sources() -> list[Path]:
    """Return what the jar is made from, in one order."""
    return sorted(SOURCES.glob("*.scala"))


def digest() -> str:
    """Return the digest of the sources and of this file."""
    found = hashlib.sha256()
    for path in (*sources(), Path(__file__).resolve()):
        data = path.read_bytes()
        found.update(f"{path.name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def is_current() -> bool:
    """Tell whether the jar is there and was made from the sources of now."""
    try:
        with zipfile.ZipFile(JAR) as jar:
            return jar.read(DIGEST).decode() == digest()
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def build() -> None:
    """Make the jar.

    Raises
    ------
    JarError
        There is no PySpark or no Java here, the sources do not compile, or the jar is too large.
    """
    with tempfile.TemporaryDirectory(prefix="replitree-jar-") as folder:
        classes = Path(folder)
        compile_into(classes)
        entries = {path.relative_to(classes).as_posix(): path.read_bytes() for path in walk(classes)}
    # Beside the class of an object Scala makes one with its methods as static ones, which Scala itself never calls.
    entries = {
        name: ClassCopy(data).made()
        for name, data in entries.items()
        if name == ENTRY or b"<init>" in data or name.replace(".class", "$.class") not in entries
    }
    entries[DIGEST] = digest().encode()
    entries[SERVICE] = b"io.replitree.spark.NamedSource\n"
    entries["META-INF/MANIFEST.MF"] = b"Manifest-Version: 1.0\r\n\r\n"
    JAR.parent.mkdir(parents=True, exist_ok=True)
    # Two builds at once: each writes a file of its own, and the later one replaces the other's, which is the same.
    descriptor, name = tempfile.mkstemp(dir=JAR.parent, suffix=".tmp")
    with os.fdopen(descriptor, "wb") as draft, zipfile.ZipFile(draft, "w") as jar:
        for entry in sorted(entries, key=lambda entry: (entry != "META-INF/MANIFEST.MF", entry)):
            head = zipfile.ZipInfo(entry, TIME)
            head.compress_type = zipfile.ZIP_DEFLATED
            head.external_attr = 0o644 << 16
            jar.writestr(head, entries[entry], compresslevel=9)
    made = Path(name)
    made.chmod(0o644)
    size = made.stat().st_size
    if size > BYTES_MAX:
        made.unlink()
        raise JarError(f"the jar has {size:,} bytes, and {BYTES_MAX:,} are allowed")
    made.replace(JAR)


class ClassCopy:
    """A class file, copied without what only compilers read (Java VM specification, chapter 4): a third of the jar.

    Nothing is compiled against the jar.  Attributes are left out; a text that nothing else uses becomes an empty one, so that
    no number of a constant changes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 10
        self._copy = bytearray(data[:10])
        self._texts = dict[int, bytes]()
        self._places = dict[int, int]()
        self._used = set[int]()

    def made(self) -> bytes:
        """Return the copy.

        Raises
        ------
        JarError
            The class file has something that this tool does not know.
        """
        self._constants()
        # The class's flags, its name and its parent's, and its interfaces.
        self._take(8 + 2 * self._number(self._place + 6, 2))
        # Fields, then methods: each has flags, a name and a type before its attributes.
        for _ in range(2):
            self._members()
        self._attributes()
        if self._place != len(self._data):
            raise JarError("a class file goes on after its end")
        # From the last one on: all that is before a constant is as long in the copy as in the class file.
        for number in sorted(self._texts.keys() - self._used, reverse=True):
            place = self._places[number]
            self._copy[place + 1 : place + 3 + len(self._texts[number])] = b"\0\0"
        return bytes(self._copy)

    def _number(self, place: int, size: int) -> int:
        return int.from_bytes(self._data[place : place + size], "big")

    def _use(self, place: int, count: int) -> None:
        """Note that the class uses the constants with the numbers at a place."""
        self._used.update(self._number(place + 2 * at, 2) for at in range(count))

    def _take(self, size: int) -> None:
        self._copy += self._data[self._place : self._place + size]
        self._place += size

    def _constants(self) -> None:
        count, number = self._number(8, 2), 1
        while number < count:
            tag = self._data[self._place]
            size = CONSTANT_BYTES.get(tag, 0)
            if tag == UTF8:
                size = 3 + self._number(self._place + 1, 2)
                self._texts[number] = self._data[self._place + 3 : self._place + size]
                self._places[number] = self._place
            elif not size:
                raise JarError(f"a class file has a constant of the unknown kind {tag}")
            else:
                self._use(self._place + 1, TEXTS_NAMED.get(tag, 0))
            self._take(size)
            number += 2 if tag in TWO_NUMBERS else 1

    def _members(self) -> None:
        count, at, left_out = self._number(self._place, 2), len(self._copy), 0
        self._take(2)
        for _ in range(count):
            if self._texts[self._number(self._place + 2, 2)] == READS_FUNCTIONS:
                self._place += 6
                for _ in range(self._skip(2)):
                    self._place += 2
                    size = self._skip(4)
                    self._place += size
                left_out += 1
                continue
            self._use(self._place + 2, 2)
            self._take(6)
            self._attributes()
        self._copy[at : at + 2] = (count - left_out).to_bytes(2, "big")

    def _skip(self, size: int) -> int:
        """Leave out a number, and return it."""
        self._place += size
        return self._number(self._place - size, size)

    def _attributes(self) -> None:
        count, at, left_out = self._number(self._place, 2), len(self._copy), 0
        self._take(2)
        for _ in range(count):
            name, size = self._texts[self._number(self._place, 2)], 6 + self._number(self._place + 2, 4)
            if name in LEFT_OUT:
                self._place += size
                left_out += 1
                continue
            if name not in KEPT:
                raise JarError(f"a class file has the unknown attribute {name.decode()}")
            self._use(self._place, 1)
            if name == b"SourceFile":
                self._use(self._place + 6, 1)
            if name != b"Code":
                self._take(size)
                continue
            begin = len(self._copy)
            # Two limits, the instructions with their length, and the handlers with their number are before its own attributes.
            self._take(14 + self._number(self._place + 10, 4))
            self._take(2 + 8 * self._number(self._place, 2))
            self._attributes()
            self._copy[begin + 2 : begin + 6] = (len(self._copy) - begin - 6).to_bytes(4, "big")
        self._copy[at : at + 2] = (count - left_out).to_bytes(2, "big")


def walk(folder: Path) -> list[Path]:
    """Return all files below a folder."""
    return [file for path in folder.iterdir() for file in (walk(path) if path.is_dir() else [path])]


def compile_into(folder: Path) -> None:
    """Compile the sources into a folder.  Raises as `build`."""
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise JarError(f"{sys.executable} has no PySpark, whose jars have the compiler: run `make setup` first")
    jars = sorted((Path(spark.origin).parent / "jars").glob("*.jar"))
    compiler = [str(jar) for jar in jars if jar.name.startswith(COMPILER)]
    command = [java(), "-Xss8m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(compiler)]
    command += [
        "scala.tools.nsc.Main",
        "-classpath",
        ":".join(map(str, jars)),
        "-d",
        str(folder),
        "-release",
        "17",
        "-g:line",
        "-Yno-generic-signatures",
        "-Xmixin-force-forwarders:false",
        "-opt:l:method",
    ]
    command += ["-Xlint:_,-missing-interpolator", "-Werror", *map(str, sources())]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise JarError(f"the Scala sources do not compile:\n{done.stdout}")


def java() -> str:
    """Return the Java that replitree finds; of the checkout, which need not be installed here."""
    sys.path.insert(0, str(ROOT / "src"))
    from replitree.errors import JavaMissing
    from replitree.java import find_java

    try:
        return str(find_java())
    except JavaMissing as error:
        raise JarError(str(error)) from error


def main() -> int:
    """Make the jar unless it is current; return the exit code."""
    if is_current():
        return 0
    try:
        build()
    except JarError as error:
        print(f"jar: {error}", file=sys.stderr)
        return 1
    print(f"jar: {JAR.relative_to(ROOT)} ({JAR.stat().st_size:,} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
