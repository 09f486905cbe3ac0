"""Templates of the standard library's pure modules, by module. See `filling` for the places."""

LIBRARIES = {
    "math": r"""
print(math.sin($moderate), math.cos($moderate), math.tan($moderate))
print(math.exp($moderate), math.log(abs($finite)), math.log2(abs($finite)), math.log10(abs($finite)), math.log1p($unit))
print(math.sqrt($finite), math.cbrt($finite), math.hypot($moderate, $moderate), math.dist($moderates, $moderates))
print(math.pow($unit, $moderate), math.fmod($finite, $finite), math.remainder($finite, $finite), math.modf($finite))
print(math.gamma($moderate), math.lgamma($moderate), math.erf($moderate), math.erfc($moderate))
print(math.asin($unit), math.acos($unit), math.atan($moderate), math.atan2($moderate, $moderate))
print(math.sinh($moderate), math.cosh($moderate), math.tanh($moderate), math.asinh($moderate), math.atanh($unit))
print(math.factorial($positive), math.comb($hundred, $positive), math.perm($positive, $small), math.isqrt(abs($int)))
print(math.gcd($int, $int, $int), math.lcm($int, $int), math.prod($ints), math.fsum($finites), math.prod($finites))
print(math.floor($float), math.ceil($float), math.trunc($finite), math.frexp($finite), math.ldexp($finite, $small))
print(math.nextafter($finite, $finite), math.ulp($finite), math.copysign($finite, $float), math.isclose($finite, $finite))
print(math.degrees($moderate), math.radians($moderate), math.isnan($float), math.isinf($float), math.exp2($moderate))
print(math.log($int), math.sqrt($int), math.expm1($moderate), math.log(abs($int) + 1, $positive + 1))
print(sum(math.sin($nexpr) for n in range($small)), [round(math.exp(n / $positive), 6) for n in range($small)])
print(math.comb($int, $small), math.factorial($finite))
""",
    "cmath": r"""
print(cmath.sqrt($complex), cmath.exp($complex), cmath.log($complex))
print(cmath.sin($complex), cmath.cos($complex), cmath.tanh($complex), cmath.asin($complex))
print(cmath.phase($complex), cmath.polar($complex), cmath.rect($moderate, $moderate), cmath.isclose($complex, $complex))
print($complex ** $complex, cmath.atan($complex), cmath.log10($complex), cmath.acosh($complex))
""",
    "decimal": r"""
print(Decimal('$finite') + Decimal('$finite'), Decimal($int) / Decimal($int))
print(Decimal($finite), Decimal('$finite').sqrt(), Decimal($small).exp(), Decimal('$finite').ln(), Decimal($small) ** Decimal('$unit'))
getcontext().prec = $positive\nprint(Decimal($int) / Decimal($int), Decimal($int) * Decimal('$finite'), Decimal(2).sqrt())
print(Decimal('$finite').quantize(Decimal('0.01'), rounding=$rounding), round(Decimal('$finite'), $small))
print(Decimal('$finite') % Decimal('$finite'), Decimal('$finite') // Decimal('$finite'), divmod(Decimal($int), Decimal('$finite')))
print(Decimal('$finite').as_tuple(), Decimal('$finite').normalize(), Decimal('$finite').to_eng_string(), Decimal('$finite').adjusted())
print(Decimal('$finite') $cmp Decimal('$finite'), Decimal('$finite') $cmp $finite, Decimal($str))
print(format(Decimal('$finite'), '$spec'), str(Decimal('$finite').scaleb($small)), Decimal('$finite').logb())
print(sum(map(Decimal, ['$finite', '$finite'])), max(Decimal('$finite'), Decimal($int)), int(Decimal('$finite')), float(Decimal('$finite')))
with localcontext() as c:\n    c.prec = $hundred\n    c.rounding = $rounding\n    print(Decimal(1) / Decimal($int), Decimal($int).log10(), +Decimal('$finite'))
print(Decimal($int).compare(Decimal('$finite')), Decimal($int).fma($int, $int), Decimal($int).remainder_near($int), Decimal($int).next_plus())
""",
    "fractions": r"""
print(Fraction($int, $int) $op Fraction($int, $positive), Fraction($finite), Fraction('$finite'))
print(Fraction($int, $positive).limit_denominator($hundred), round(Fraction($int, $int), $small), float(Fraction($int, $int)))
print(Fraction($int, $positive) ** $small, Fraction($int, $positive) $cmp $finite, math.floor(Fraction($int, $positive)), -Fraction($int, 7))
print(sum(Fraction(1, n + 1) for n in range($positive)), repr(Fraction($int, $positive)), Fraction($int, $positive).as_integer_ratio())
print(Fraction($int, $positive) + $finite, Fraction($small) ** Fraction(1, 2), divmod(Fraction($int, 3), Fraction($small, 7)), Fraction($str))
""",
    "itertools": r"""
print(list(accumulate($ints)), list(accumulate($ints, lambda x, y: (x * y) % 1009)), list(chain($ints, $words)))
print(list(combinations($smalls, $small)), list(permutations($smalls, 2))[:20], list(product($smalls, repeat=2))[:20])
print(list(combinations_with_replacement($smalls, 2)), list(compress($words, $smalls)), list(islice(count($int, $int), $small)))
print([(k, list(g)) for k, g in groupby($ints, lambda x: x % 3)], list(zip_longest($ints, $words, fillvalue=$value)))
print(list(takewhile(lambda x: x > $small, $ints)), list(dropwhile(lambda x: x > $small, $ints)), list(pairwise($ints)))
print(list(starmap(pow, [($small, $small), ($small, $small)])), list(islice(cycle($words), $positive)), list(repeat($value, $small)))
a, b = tee($ints)\nprint(list(a), next(b, None), list(islice($ints, $small, None, $positive)), list(filterfalse(None, $values)))
print(next(islice(count($finite, $finite), $small, None)), sum(1 for _ in product(range($small), repeat=$small % 4)), count($int, $small))
""",
    "functools": r"""
print(reduce(lambda x, y: x $op (y or 1), $ints), reduce(operator.mul, $finites), partial(pow, $small)($small))
@lru_cache(maxsize=$positive)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nprint(f($hundred % 20), f.cache_info())
print(sorted($ints, key=cmp_to_key(lambda x, y: (x % 10 > y % 10) - (x % 10 < y % 10))))
@singledispatch\ndef f(x): return 'other'\n@f.register\ndef _(x: int): return 'int'\n@f.register\ndef _(x: list): return 'list'\nprint(f($value), f($int))
@total_ordering\nclass N:\n    def __init__(self, v): self.v = v\n    def __eq__(self, o): return self.v == o.v\n    def __lt__(self, o): return self.v < o.v\nprint(N($int) >= N($int), N($word) > N($word))
print(operator.itemgetter(0, -1)($ints), operator.floordiv($int, $int), operator.index($int), operator.concat($word, $word), operator.lt($value, $value))
""",
    "collections": r"""
print(Counter($word), Counter($smalls).most_common($small), Counter($smalls) + Counter($smalls), Counter($smalls) - Counter($smalls))
d = deque($ints, maxlen=$positive)\nd.rotate($int % 5)\nd.appendleft($value)\nprint(d, d.pop(), d[$small])
d = defaultdict(list)\nfor k in $ints: d[k % 3].append(k)\nprint(d, dict(d), d[$small])
P = namedtuple('P', 'x y')\nprint(P($int, $value), P(1, 2)._replace(x=$finite), P(*$ints))
print(ChainMap({$small: $value}, {$small: $value}), OrderedDict(zip($words, $values)), list(ChainMap({$small: 1}, {2: 3}).items()))
d = OrderedDict(zip($words, $ints))\nd.move_to_end(next(iter(d)))\nprint(d.popitem(last=$bool), list(d), UserDict(d), UserList($ints) * 2)
""",
    "heapq": r"""
h = $ints\nheapq.heapify(h)\nprint(h, heapq.heappop(h), heapq.heappushpop(h, $int), h, heapq.nsmallest($small, h), heapq.nlargest(2, h))
print(list(heapq.merge(sorted($ints), sorted($ints))), bisect.bisect($smalls, $small), bisect.bisect_left(sorted($ints), $int))
a = sorted($finites)\nbisect.insort(a, $finite)\nprint(a, bisect.bisect_right(range(0, $int), $int))
""",
    "statistics": r"""
print(statistics.mean($ints), statistics.mean($finites), statistics.median($finites), statistics.fmean($finites))
print(statistics.stdev($moderates), statistics.variance($moderates), statistics.pstdev($smalls), statistics.pvariance($ints))
print(statistics.mode($smalls), statistics.multimode($smalls), statistics.quantiles($moderates, n=4), statistics.median_low($ints))
print(statistics.harmonic_mean([$positive, $unit]), statistics.geometric_mean([$positive, $unit]), statistics.NormalDist($moderate, $positive).cdf($moderate))
print(statistics.correlation($perm, $perm), statistics.linear_regression($perm, $perm), statistics.covariance($perm, $perm))
""",
    "random": r"""
random.seed($int)\nprint(random.random(), random.randint($small, 10 + $small), random.uniform($moderate, $moderate), random.getrandbits($hundred))
random.seed($str)\nprint(random.choice($words), random.sample(range($hundred + 9), 5), random.choices($words, k=4), random.randbytes(4))
random.seed($int)\na = $ints\nrandom.shuffle(a)\nprint(a, random.gauss(0, 1), random.expovariate(1.5), random.betavariate(2, 3), random.triangular())
r = random.Random($int)\nprint(r.randrange(10 ** $positive), r.normalvariate(0, 1), r.randrange(2 ** $power), r.vonmisesvariate(0, 1), r.paretovariate(2))
random.seed($int)\nprint(sum(random.random() < $unit for _ in range($hundred)), [random.randint(1, 6) for _ in range($small)], random.sample($words, 1))
""",
    "re": r"""
print(re.findall(r'\\w+', $str), re.sub(r'[aeiou]', $word, $str), re.split(r'[\\s,;]+', $str))
print(re.match(r'(\\d+)\\.?(\\d*)', '$finite').groups(), re.search(r'(?P<a>[a-z])(?P<b>.)', $word))
print([m.span() for m in re.finditer(r'(?i)[a-c]+', $str)], re.fullmatch(r'[\\w\\s]*', $str), ascii(re.escape($str)))
print(re.sub(r'(\\d)(\\d)', r'\\2\\1', '$int'), re.subn('a|b', lambda m: m[0] * $small, $word), re.compile($word, re.I))
print(re.findall(r'(?<=a).|b(?!c)|(.)\\1', $str), re.findall(r'\\b\\w', $str, re.A), re.split(r'(x|y)', $word), re.match(r'a{$small,$positive}', 'a' * $small))
re.compile($str)
""",
    "json": r"""
print(json.dumps($value), json.dumps($values, indent=$small), json.dumps({$str: $ints, 'a': $float}, sort_keys=True, ensure_ascii=$bool).encode('utf-8', 'replace'))
print(json.loads('[$int, $finite, "\\\\u00e9", {"k": null}]'), json.loads(json.dumps($floats)), json.loads($str))
print(json.loads('{"$small": [$finite, true], "x": {"y": $int}}'), json.dumps({$small: 1, None: $bool}), json.dumps($values, separators=(',', ':')))
""",
    "datetime": r"""
d = date($date)\nprint(d, d.weekday(), d.isoformat(), d.strftime('%Y-%j-%U %a %b'), d.isocalendar(), d.toordinal(), d.replace(day=1))
print(date($date) - date($date), date($date) + timedelta(days=$hundred), date($date) $cmp date($date), timedelta(seconds=$int))
print(timedelta($small, $hundred, $int) $op $small, timedelta(hours=$hundred).total_seconds(), timedelta(days=$hundred) / timedelta(hours=$positive))
print(datetime($date, $small, $positive).isoformat(), datetime($date).timetuple()[:8], datetime.fromtimestamp($int % 10 ** 10, timezone.utc))
print(datetime.strptime('20$positive-0$positive', '%Y-%m%d'), datetime.fromisoformat('2024-02-$hundred'), time($small, $small).isoformat())
print(datetime($date, tzinfo=timezone(timedelta(hours=$small))).timestamp(), calendar.monthrange($hundred + 1, $small), calendar.isleap($hundred * 10))
print(calendar.month($hundred + 1900, 1 + $small), datetime($date).strftime('%c %x %X %p %y %Z'), datetime.fromordinal($int), date.fromisocalendar(2020, $positive, $small))
print(datetime(2024, 5, 6, 7, 8, tzinfo=ZoneInfo('Europe/Berlin')) + timedelta(days=$hundred), datetime($date, tzinfo=ZoneInfo('America/New_York')).utcoffset())
""",
    "text": r"""
print(textwrap.fill($word * 9 + ' ' + $str, $positive), textwrap.dedent('  a\\n   b'), textwrap.shorten($str + ' b c', $positive), textwrap.wrap($word * 5, $small))
print(string.capwords($str).encode('utf-8', 'replace'), string.Template('a $' + 'x').substitute(x=$value), string.Formatter().format('{0} {k!r:>9}', $int, k=$word))
print(ascii(unicodedata.normalize('NFKD', $str)), [unicodedata.category(c) for c in $str], [unicodedata.name(c, '?') for c in $str])
print(difflib.get_close_matches($word, $words), difflib.SequenceMatcher(None, $word, $word).ratio(), list(difflib.ndiff($words, $words)))
print(pprint.pformat($values, width=$positive), shlex.split($str), html.escape($str).encode('utf-8', 'replace'), urllib.parse.quote($word + ' &'), fnmatch.fnmatch($word, 'a*'))
""",
    "bytes": r"""
print(struct.pack('<${small}hIq', *[$small] * ($small), $int, $int), struct.calcsize('<hiqfd'), struct.unpack('<d', struct.pack('>d', $float)))
print(struct.pack('<d', $float), struct.pack('<f', $finite), struct.pack('>e', $moderate), struct.pack('!IHb', $hundred, $hundred, $small))
print(array.array('i', $ints), array.array('d', $finites), array.array('q', $ints).tobytes()[:16], array.array('B', $smalls) * 2)
print(hashlib.sha256($bytes).hexdigest(), hashlib.md5($str.encode('utf-8', 'replace')).hexdigest(), hashlib.blake2b($bytes, digest_size=9).hexdigest())
print(base64.b64encode($bytes), base64.b32encode($bytes), base64.b85encode($bytes), base64.b64decode($word), binascii.crc32($bytes), binascii.hexlify($bytes))
print(zlib.crc32($bytes), zlib.adler32($bytes), zlib.decompress(zlib.compress($bytes * 99)) == $bytes * 99, pickle.loads(pickle.dumps($value)), pickle.dumps($ints, 4))
print(io.StringIO($str).readlines(), io.BytesIO($bytes).read($small), list(csv.reader(io.StringIO('$int,"$small, x"\\n$finite'))), hmac.new($bytes, $bytes, 'sha1').hexdigest())
print(uuid.uuid5(uuid.NAMESPACE_DNS, $word), uuid.UUID(int=abs($int) % 2 ** 128), ipaddress.ip_address($int), secrets.compare_digest($word, $word), colorsys.rgb_to_hsv($unit, $unit, $unit))
""",
    "machine": r"""
print({*$ints}, {*$smalls, $int}, set($finites), frozenset($ints))
print(hash($int), hash($finite), hash(($int, $small)), hash($int) == hash(float($small)))
print(len(range($int)), range($int)[$int], range(abs($int))[$small:][0], list(islice(range(9), abs($int))))
print(random.Random($small).sample(range(abs($int) + 9), 2), random.Random($small).choice(range(abs($int) + 1)), bisect.bisect(range(abs($int)), $small))
print('a'.ljust($int)[:3] if $int < 10 ** 6 else 0, [1, 2, 3][$int:$int], 'abc'.find('c', $int), [1, 2].index(2, $small, abs($int)))
print(sys.maxsize, sys.hash_info.width, sys.getsizeof($values), struct.calcsize('lP'), array.array('l', $smalls).itemsize, sys.platform)
""",
    "objects": r"""
@dataclass(order=True)\nclass D:\n    x: int\n    y: list = field(default_factory=list, compare=False)\nprint(D($int, $values), D($small) < D($small), dataclasses.asdict(D($value)), dataclasses.replace(D(1), x=$value))
@dataclass(frozen=True)\nclass D:\n    x: object\nd = D($value)\nprint(d, D($small) == D($small))\nd.x = 1
class E(enum.Enum):\n    A = $small\n    B = $small\n    C = enum.auto()\nprint(list(E), E.C.value, E($small))
class F(enum.IntFlag):\n    A = 1\n    B = 2\n    C = 4\nprint(F($small), F.A | F.C, F(3) & F.B, ~F.A, list(F($small % 8)))
a = $values\nb = copy.deepcopy(a)\nb.append(1)\nprint(a, b, copy.copy(a) == a)
print(ast.literal_eval(repr($value)), ast.unparse(ast.parse('x = $floatexpr')))
print(inspect.signature(lambda a, b=$value, *c, d: 0), types.SimpleNamespace(a=$value), typing.get_type_hints(lambda: 0), abc.ABC.__name__)
with contextlib.redirect_stdout(io.StringIO()) as out: print($value)\nprint(repr(out.getvalue()))\nwith contextlib.suppress(ZeroDivisionError): print($int // $small)
g = graphlib.TopologicalSorter({$small: [$small], $small: [$small]})\nprint(list(g.static_order()))
print(numbers.Rational.__name__, isinstance($value, numbers.Number), weakref.WeakValueDictionary(), sys.getrecursionlimit(), sys.float_info.max, sys.int_info.str_digits_check_threshold)
""",
}
IMPORTS = {
    "machine": "import array, bisect, random, struct, sys\nfrom itertools import islice",
    "fractions": "import math\nfrom fractions import Fraction",
    "decimal": "from decimal import *",
    "itertools": "from itertools import *",
    "functools": "import operator\nfrom functools import *",
    "collections": "from collections import *",
    "heapq": "import bisect, heapq",
    "datetime": "import calendar\nfrom datetime import *\nfrom zoneinfo import ZoneInfo",
    "text": "import difflib, fnmatch, html, pprint, shlex, string, textwrap, unicodedata, urllib.parse",
    "bytes": "import array, base64, binascii, colorsys, csv, hashlib, hmac, io, ipaddress, pickle, secrets, struct, uuid, zlib",
    "objects": (
        "import abc, ast, contextlib, copy, dataclasses, datetime, enum, graphlib, inspect, io, numbers, sys, types, typing\n"
        "import weakref\nfrom dataclasses import dataclass, field"
    ),
}
