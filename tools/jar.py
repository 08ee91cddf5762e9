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
BYTES_MAX = 106_000
"""The wheel carries the jar, and every session of Spark loads it."""

UTF8 = 1
CONSTANT_BYTES = {
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 5),
    **dict.fromkeys((5, 6), 9),
    **dict.fromkeys((7, 8, 16, 19, 20), 3),
    15: 4,
}
"""Bytes of each kind of constant in a class file, by its tag; a text (`UTF8`) says its own (Java VM specification 4.4)."""

NAMES_AT = {
    **dict.fromkeys((7, 8, 16, 19, 20), (0,)),
    **dict.fromkeys((9, 10, 11, 12), (0, 2)),
    15: (1,),
    17: (2,),
    18: (2,),
}
"""Where a constant has the numbers of others, in bytes behind its tag."""

TWO_NUMBERS = (5, 6)
"""Kinds of constants that take two numbers: long and double."""

LDC, IINC, WIDE = 0x12, 0x84, 0xC4
SWITCHES = (0xAA, 0xAB)
NAMES_CONSTANT = frozenset({LDC, 0x13, 0x14, *range(0xB2, 0xBC), 0xBD, 0xC0, 0xC1, 0xC5})
"""Instructions whose operand begins with the number of a constant: of one byte after `LDC`, of two after the others (6.5)."""

OPERAND_BYTES = {
    **dict.fromkeys((0x10, LDC, *range(0x15, 0x1A), *range(0x36, 0x3B), 0xA9, 0xBC), 1),
    **dict.fromkeys((0x11, 0x13, 0x14, IINC, *range(0x99, 0xA9), *range(0xB2, 0xB9)), 2),
    **dict.fromkeys((0xBB, 0xBD, 0xC0, 0xC1, 0xC6, 0xC7), 2),
    0xC5: 3,
    **dict.fromkeys((0xB9, 0xBA, 0xC8, 0xC9), 4),
}
"""Bytes behind an instruction, by its code; the others have none, but for switches and `WIDE`."""

OBJECT, UNINITIALIZED = 7, 8
"""Types of values in a stack map that have two bytes more; those of the first are the number of a class (4.7.4)."""

LEFT_OUT = frozenset(
    {b"RuntimeVisibleAnnotations", b"Scala", b"ScalaInlineInfo", b"ScalaSig"}
    | {b"InnerClasses", b"LocalVariableTable", b"MethodParameters"}
)
"""Attributes with types for compilers, hints for Scala's optimizer, the nesting of classes, and names of variables."""

KEPT = frozenset(
    {b"BootstrapMethods", b"Code", b"ConstantValue", b"Exceptions", b"LineNumberTable", b"SourceFile", b"StackMapTable"}
)
"""Attributes that the JVM and its stack traces need."""

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
    """A class file, copied without what only compilers read (Java VM specification, chapter 4), which is two fifths of the jar.

    Nothing is compiled against the jar.  Attributes are left out, and so are constants that nothing else uses.  The others are
    sorted, those of one kind by the texts that they name: neighbours are alike then, and the zip file is a sixteenth smaller.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 10
        # What comes after the constants, and where it has their numbers: the place in it, and how many bytes.
        self._copy = bytearray()
        self._numbers = list[tuple[int, int]]()
        self._constants = dict[int, tuple[int, bytes]]()

    def made(self) -> bytes:
        """Return the copy.

        Raises
        ------
        JarError
            The class file has something that this tool does not know.
        """
        self._read_constants()
        # The class's flags, its name and its parent's, and its interfaces.
        self._take(2)
        self._take_names(2)
        self._take_names(self._take(2))
        # Fields, then methods: each has flags, a name and a type before its attributes.
        for _ in range(2):
            self._members()
        self._attributes()
        if self._place != len(self._data):
            raise JarError("a class file goes on after its end")
        return self._written()

    def _read_constants(self) -> None:
        count, number = self._number(8, 2), 1
        while number < count:
            tag = self._data[self._place]
            size = 3 + self._number(self._place + 1, 2) if tag == UTF8 else CONSTANT_BYTES.get(tag, 0)
            if not size:
                raise JarError(f"a class file has a constant of the unknown kind {tag}")
            self._constants[number] = (tag, self._data[self._place + 1 : self._place + size])
            self._place += size
            number += 2 if tag in TWO_NUMBERS else 1

    def _written(self) -> bytes:
        """Return the class file with the constants that are used."""
        used, near = set[int](), set[int]()
        todo = list[int]()
        for place, size in self._numbers:
            number = int.from_bytes(self._copy[place : place + size], "big")
            todo += [number] if number else []
            near |= {number} if size == 1 else set()
        while todo:
            if (number := todo.pop()) not in used:
                used.add(number)
                todo += self._named_by(number)
        # An `LDC` reaches the first 255.
        rank = {number: (number not in near, self._constants[number][0], *self._texts(number)) for number in used}
        order = sorted(sorted(used), key=rank.__getitem__)
        renamed, count = {0: 0}, 1
        for number in order:
            renamed[number] = count
            count += 2 if self._constants[number][0] in TWO_NUMBERS else 1
        made = bytearray(self._data[:8] + count.to_bytes(2, "big"))
        for number in order:
            tag, value = self._constants[number]
            fields = bytearray(value)
            for at in NAMES_AT.get(tag, ()):
                fields[at : at + 2] = renamed[int.from_bytes(value[at : at + 2], "big")].to_bytes(2, "big")
            made += bytes([tag]) + fields
        for place, size in self._numbers:
            number = renamed[int.from_bytes(self._copy[place : place + size], "big")]
            self._copy[place : place + size] = number.to_bytes(size, "big")
        return bytes(made + self._copy)

    def _named_by(self, number: int) -> list[int]:
        tag, value = self._constants[number]
        return [int.from_bytes(value[at : at + 2], "big") for at in NAMES_AT.get(tag, ())]

    def _texts(self, number: int) -> list[bytes]:
        """Return the texts that a constant names, or the one that it is."""
        named = [text for each in self._named_by(number) for text in self._texts(each)]
        return named or [self._text(number)]

    def _number(self, place: int, size: int) -> int:
        return int.from_bytes(self._data[place : place + size], "big")

    def _take(self, size: int) -> int:
        """Copy some bytes, and return the number that they are."""
        self._copy += self._data[self._place : self._place + size]
        self._place += size
        return self._number(self._place - size, size)

    def _take_names(self, count: int, size: int = 2) -> None:
        """Copy numbers of constants."""
        for _ in range(count):
            self._numbers.append((len(self._copy), size))
            self._take(size)

    def _members(self) -> None:
        count, at, left_out = self._number(self._place, 2), len(self._copy), 0
        self._take(2)
        for _ in range(count):
            if self._text(self._number(self._place + 2, 2)) == READS_FUNCTIONS:
                self._place += 6
                for _ in range(self._skip(2)):
                    self._place += 2
                    size = self._skip(4)
                    self._place += size
                left_out += 1
                continue
            self._take(2)
            self._take_names(2)
            self._attributes()
        self._copy[at : at + 2] = (count - left_out).to_bytes(2, "big")

    def _text(self, number: int) -> bytes:
        return self._constants[number][1][2:]

    def _skip(self, size: int) -> int:
        """Leave out a number, and return it."""
        self._place += size
        return self._number(self._place - size, size)

    def _attributes(self) -> None:
        count, at, left_out = self._number(self._place, 2), len(self._copy), 0
        self._take(2)
        for _ in range(count):
            name, size = self._text(self._number(self._place, 2)), self._number(self._place + 2, 4)
            if name in LEFT_OUT:
                self._place += 6 + size
                left_out += 1
                continue
            if name not in KEPT:
                raise JarError(f"a class file has the unknown attribute {name.decode()}")
            self._take_names(1)
            self._take(4)
            begin = len(self._copy)
            match name:
                case b"Code":
                    self._code()
                    self._copy[begin - 4 : begin] = (len(self._copy) - begin).to_bytes(4, "big")
                case b"StackMapTable":
                    self._stack_maps()
                case b"BootstrapMethods":
                    for _ in range(self._take(2)):
                        self._take_names(1)
                        self._take_names(self._take(2))
                case b"ConstantValue" | b"SourceFile":
                    self._take_names(1)
                case b"Exceptions":
                    self._take_names(self._take(2))
                case _:
                    self._take(size)
        self._copy[at : at + 2] = (count - left_out).to_bytes(2, "big")

    def _code(self) -> None:
        """Copy a method: two limits, the instructions with their length, the handlers with their number, and its attributes."""
        self._take(4)
        size = self._take(4)
        begin = self._place
        while self._place < begin + size:
            code = self._take(1)
            if code in SWITCHES:
                # Their numbers begin at a multiple of four: where else to go, then the lowest case, or how many there are.
                self._take(-(self._place - begin) % 4 + 4)
                low = self._take(4)
                self._take(8 * low if code == SWITCHES[1] else 4 * ((self._take(4) - low + 1) % (1 << 32)))
            elif code == WIDE:
                self._take(4 if self._take(1) == IINC else 2)
            else:
                named = code in NAMES_CONSTANT
                self._take_names(int(named), 1 if code == LDC else 2)
                self._take(OPERAND_BYTES.get(code, 0) - (0 if not named else 1 if code == LDC else 2))
        for _ in range(self._take(2)):
            self._take(6)
            self._take_names(1)
        self._attributes()

    def _stack_maps(self) -> None:
        for _ in range(self._take(2)):
            kind = self._take(1)
            if kind == 255:
                self._take(2)
                for _ in range(2):
                    self._values(self._take(2))
            elif kind > 251:
                self._take(2)
                self._values(kind - 251)
            elif kind > 246:
                self._take(2)
                self._values(int(kind == 247))
            elif kind > 63:
                self._values(1)

    def _values(self, count: int) -> None:
        """Copy types of values."""
        for _ in range(count):
            kind = self._take(1)
            self._take_names(int(kind == OBJECT))
            self._take(2 if kind == UNINITIALIZED else 0)


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
        # Line numbers are a twentieth of the jar, which would be above its limit; stack traces name the methods without them.
        "-g:none",
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
