"""Templates of numpy, scipy, pandas, sympy and networkx. See `filling` for the places."""

NUMERICS = {
    "numpy": r"""
print(np.array($ints), np.array($ints).dtype)
print(np.arange($hundred), np.arange($hundred).sum(), np.arange($small, $positive, $positive).dtype)
print(np.arange($hundred * 1000).sum(), np.arange($hundred * 1000).cumsum()[-1], (np.arange($hundred * 1000) ** 2).sum())
print(np.array($smalls) * $int, np.array($smalls) + $hundred ** $small, np.array($smalls) $op $small)
print(np.prod($smalls), np.prod(np.arange(1, $positive)), np.cumprod(np.arange(1, $positive % 22 + 2)), np.power($small, $positive))
print(np.zeros($small, dtype=$dtype), np.ones(($small, 2), dtype=$dtype), np.full($small, $small, dtype=$dtype))
print(np.array($moderates).astype($dtype), np.array($smalls, dtype=$dtype).dtype, np.array($smalls).astype($dtype) * $small)
print(np.array($moderates).mean(), np.std($moderates), np.var($moderates), np.median($moderates), np.percentile($moderates, $positive))
print(np.array($moderates).sum(), np.max($moderates), np.argmin($moderates), np.argsort($moderates), np.sort($moderates))
print(np.sin($moderates), np.exp($moderates), np.log(np.abs($finites)), np.sqrt(np.abs($finites)), np.tanh($moderates))
print(np.array($perm) @ np.array($perm), np.dot($moderates[:3], $moderates[:3]), np.outer($smalls, $smalls), np.cross([1, 2, $int], [$small, 5, 6]))
print(np.array($perm).reshape(2, 3), np.array($perm).reshape(3, 2).T.sum(axis=$axis), np.array($perm).reshape(2, 3).cumsum(axis=$axis))
print(np.linalg.det(np.array($perm[:4]).reshape(2, 2)), np.linalg.inv([[$positive, 1], [$small, -$positive]]), np.linalg.solve([[2, 1], [1, $positive + 3]], [$small, $moderate]))
print(np.linalg.eigvals([[$small, 1], [1, $small]]).real, np.linalg.norm($moderates), np.linalg.matrix_rank([[$small, 1], [1, $small]]), np.linalg.matrix_power(np.array([[1, 1], [1, 0]]), $hundred))
print(np.linspace($small, $hundred, $small + 2), np.linspace(0, $hundred, $small + 1, dtype=int), np.logspace(0, $small, 3), np.geomspace(1, $hundred, 3))
print(np.unique($smalls, return_counts=True), np.bincount($smalls), np.histogram($moderates, bins=3), np.digitize($moderates, [-50, 0, 50]))
print(np.where(np.array($smalls) > $small, 1, $int), np.nonzero($smalls), np.count_nonzero($smalls), np.searchsorted([1, 3, 5, 7], $smalls))
print(np.array($smalls)[np.array($smalls)[:1] % 1], np.array($smalls)[::-1], np.array($smalls)[np.array($smalls) > $small], np.array($smalls)[$small])
print(np.concatenate([$smalls, $finites]), np.stack([$perm, $perm]), np.tile($smalls, 2), np.repeat($smalls, $small), np.diff($ints))
print(np.isnan($floats), np.nan_to_num($floats), np.nansum($floats), np.array($floats), np.array($floats) == np.array($floats))
print(np.round($moderates, $small), np.floor($moderates), np.clip($moderates, -$positive, $positive), np.sign($moderates), np.trunc($finites))
np.random.seed($hundred)\nprint(np.random.rand(3), np.random.randint(0, $hundred, 5), np.random.randn(2), np.random.choice($perm, 3), np.random.permutation(5))
r = np.random.default_rng($hundred)\nprint(r.random(2), r.integers(0, $hundred, 5), r.normal(size=2), r.choice($perm, 3), r.permutation(6), r.integers(2 ** 40))
print(np.random.RandomState($hundred).randint(0, 2 ** 31 - 1, 3), np.random.default_rng($small).integers(0, $hundred, 3).dtype, np.random.default_rng($small).shuffle([1, 2]))
print(np.polyfit([0, 1, 2, 3], [$small, $small, $moderate, $small], 1), np.roots([1, -$positive, $small]), np.polyval($smalls, $int), np.poly1d($smalls))
print(np.gcd($int, $small), np.lcm($small, $small), np.gcd.reduce($smalls), np.left_shift(1, $power), np.bitwise_and($smalls, $small), np.invert($smalls))
print(np.int64($int) + $small, np.int32($small) * np.int32($int), np.uint8($hundred), np.float32($finite), np.int_($int))
print(np.meshgrid($smalls, [1, 2]), np.eye($small % 4 + 1, dtype=int), np.indices((2, 2)), np.identity(2), np.diag($smalls), np.tri(3, dtype=int))
print(np.fft.fft($moderates), np.convolve($smalls, $smalls), np.interp($moderate, [-100, 0, 100], [$small, $small, $int]), np.trapezoid($moderates), np.gradient($moderates))
print(np.any($smalls), np.allclose($moderates[:3], $moderates[:3]), np.array_equal($smalls, $smalls), np.isin($smalls, $smalls), np.intersect1d($smalls, $smalls))
print(np.array($words), np.char.upper($words), np.array([$small, 'a']), np.array([1, None]), np.array([$int, $finite]), np.array([True, $small]))
print(np.sum(np.array($smalls) == $small), np.mean($smalls), np.array($smalls).sum().dtype, np.sum([[1, 2], [3, $int]], axis=$axis), np.add.reduce($smalls))
print(np.vectorize(lambda x: $xexpr)($smalls), np.fromiter((x for x in $smalls), dtype=int), np.array($smalls).tolist(), np.asarray($smalls).nbytes, np.iinfo(int).max)
print(np.floor_divide($smalls, $positive), np.mod($ints[:1], $positive), np.divmod($smalls, $positive), 1 / np.array($smalls), np.array($smalls) / $positive, -np.array($smalls) ** $small)
with np.errstate(all=$reaction): print(np.array($floats) / np.array([0.0, $finite])[:1], np.exp($float), np.int64($int % 2 ** 63) * $int)
print(np.array($floats).astype(int), np.array($floats).astype('i4'), np.longdouble($unit) / 3, int(np.float64($finite)))
print(10 ** np.arange($positive), 2 ** np.arange($positive), np.arange($positive) ** $small, (np.arange($hundred) * $int).sum(), np.array([$int]) * np.array([$int]))
print(np.ma.array($smalls, mask=[n % 2 for n in $smalls]), np.datetime64('2024-01-0$small') , np.timedelta64($small, 'D'), np.busday_count('2024-01', '2024-03'))
""",
    "scipy": r"""
print(special.gamma($moderate), special.erf($moderate), special.comb($hundred, $small, exact=True), special.binom($hundred, $small), special.factorial($positive, exact=True))
print(special.jv($small, $moderate), special.zeta($positive + 1), special.lambertw($unit), special.expit($moderate), special.digamma($positive), special.ellipk($unit))
print(stats.norm.cdf($moderate), stats.norm.ppf($unit), stats.binom.pmf($small, 10, $unit), stats.poisson.cdf($small, $positive), stats.t.sf($unit, $positive), stats.chi2.ppf($unit, 3))
print(stats.linregress($perm, $perm), stats.pearsonr($perm, $perm), stats.spearmanr($perm, $perm), stats.ttest_ind($perm, $perm), stats.mode($smalls))
print(stats.describe($moderates), stats.zscore($perm), stats.gmean($perm), stats.skew($moderates), stats.iqr($moderates), stats.rankdata($smalls))
print(integrate.quad(lambda x: $xexpr, 0, $positive), integrate.simpson($moderates), integrate.trapezoid($moderates), integrate.quad(np.exp, -$positive, 0)[0])
print(optimize.brentq(lambda x: x ** 3 - $positive, 0, 10), optimize.newton(lambda x: x * x - $positive, 1.0), optimize.fsolve(lambda x: x ** 3 - $positive, 2.0))
print(optimize.minimize_scalar(lambda x: (x - $moderate) ** 2).x, optimize.minimize(lambda v: (v[0] - $small) ** 2 + v[1] ** 2, [1, 1]).x.round(4), optimize.linprog([1, 2], A_ub=[[-1, -1]], b_ub=[-$small]).x)
print(linalg.det([[$small, 2], [3, $small]]), linalg.inv([[$positive, 1], [$small, -$positive]]), linalg.eigh([[$small, 1], [1, $small]])[0], linalg.expm([[0, $unit], [0, 0]]), linalg.lu([[1, 2], [3, $small]])[2])
print(interpolate.interp1d([0, 1, 2], $perm[:3])($unit), interpolate.CubicSpline([0, 1, 2, 3, 4, 5], $perm)($unit), interpolate.lagrange([0, 1, 2], $perm[:3]))
print(sparse.csr_matrix([[$small, 0], [0, $small]]).toarray(), sparse.eye(2).toarray() * $small, sparse.coo_matrix(([1, $int % 100], ([0, 1], [1, 0]))).sum(), sparse.csgraph.shortest_path([[0, $positive], [$positive, 0]]))
print(spatial.distance.cdist([[0, $small]], [[$small, 4]]), spatial.ConvexHull([[0, 0], [1, 0], [0, $positive], [1, 1]]).volume, cluster.hierarchy.linkage([[0], [1], [$positive + 2]]), spatial.KDTree([[0, 0], [1, $small]]).query([1, 1]))
print(signal.convolve($smalls, $smalls), signal.find_peaks($moderates)[0], fft.fft($perm).round(6), ndimage.label([$small, 0, 1]), signal.lfilter([1], [1, $unit], $moderates), constants.c)
print(optimize.linear_sum_assignment([[$small, 2], [3, $small]]), optimize.curve_fit(lambda x, a, b: a * x + b, [0, 1, 2, 3, 4, 5], $perm)[0], integrate.solve_ivp(lambda t, y: -y, (0, 1), [$unit]).y[0][-1], stats.entropy($perm))
""",
    "pandas": r"""
d = pd.DataFrame({'a': $perm, 'b': $perm})\nprint(d, d.dtypes, d.sum(), d['a'].mean(), d.shape)
d = pd.DataFrame({'a': $perm, 'b': $perm})\nprint(d.groupby('a').sum(), d.describe(), d.corr(), d.sort_values('b'), d[d['a'] > $small])
s = pd.Series($smalls)\nprint(s, s.cumsum(), s.value_counts(), s.describe(), s.dtype, s.astype(float), s ** $positive, s.rolling(2).sum())
s = pd.Series($ints)\nprint(s.dtype, s.sum(), s.max(), s.tolist(), s * $small)
d = pd.DataFrame({'k': list('aabbcc'), 'v': $perm})\nprint(d.groupby('k')['v'].agg(['sum', 'mean', 'count']), d.pivot_table(index='k', values='v'), d.groupby('k').size(), d['v'].cumprod())
d = pd.DataFrame({'a': $perm})\nd['c'] = d['a'].apply(lambda x: $xexpr)\nprint(d, d.T, d.iloc[$small % 6], d.loc[d['a'].idxmax()], d.to_dict('list'))
print(pd.concat([pd.Series($smalls), pd.Series($words)]), pd.Series($floats).isna().sum(), pd.Series($floats).fillna(0), pd.Series($words).str.upper())
print(pd.date_range('2024-01-01', periods=$small, freq='D'), pd.to_datetime('2024-0$small-01'), pd.Timestamp(2024, 1, 1 + $small) + pd.Timedelta(days=$hundred), pd.cut($perm, 3))
d = pd.DataFrame({'k': $perm, 'v': $perm})\nprint(d.merge(d, left_on='k', right_on='v'), d.set_index('k').sort_index(), d.rank(), d.nlargest(2, 'v'), d.melt(), d.stack(), d.drop_duplicates())
print(pd.read_csv(__import__('io').StringIO('a,b\\n$small,$finite\\n$int,x')), pd.crosstab($perm, $perm), pd.get_dummies($words), pd.factorize($words), pd.Series($perm).quantile($unit))
""",
    "sympy": r"""
print(expand((x + $small) ** $small), factor(x ** 2 + $positive * x + $small), simplify((x ** 2 - $small) / (x - 1)))
print(solve(x ** 2 + $small * x - $positive, x), solve([x + y - $small, x - $small * y - 1], [x, y]), solveset(x ** 2 - $positive, x), roots(x ** 3 - $positive))
print(diff(sin($small * x) * exp(x) + x ** $small, x), integrate(x ** $small * exp(x), x), integrate(x ** $small, (x, 0, $positive)), limit(sin($positive * x) / x, x, 0))
print(series(cos($small * x), x, 0, 6), Sum(y ** 2, (y, 1, $hundred)).doit(), summation(1 / y, (y, 1, $positive)), product(y, (y, 1, $small)))
print(factorint(abs($int) % 10 ** 12 + 1), isprime($int), nextprime(abs($int) % 10 ** 15), divisors($hundred * 12), totient($hundred), primepi($hundred), list(primerange($hundred)))
print(Rational($int, $positive) $op Rational($small, 7), sqrt($hundred), N(pi, $hundred), (sqrt(2) + $small).evalf($positive), Float($finite), nsimplify($unit), Rational($finite))
print(Matrix([[$small, 1], [$small, 2]]).det(), Matrix([[$small, 1], [1, $small]]).eigenvals(), Matrix([[1, $small], [$small, 2]]).rref(), Matrix([[$positive, 1], [0, $positive]]).inv(), Matrix([[1, $int]]) * 2)
print(gcd($int, $int), lcm($hundred, $hundred), mod_inverse($positive, 10007), binomial($hundred, $small), factorial($positive), fibonacci($hundred), catalan($small), igcdex($int, $int))
print(gcd(x ** 2 - 1, x - $small), Poly(x ** 3 + $int * x, x).all_coeffs(), apart(1 / (x * (x + $positive)), x), together(1 / x + $small / y), cancel((x ** 2 - y ** 2) / (x - y)), div(x ** 3 + $small, x + 1))
print(sympify('$intexpr'), trigsimp(sin(x) ** 2 + cos(x) ** 2 + $small), latex(x ** $small / y), (x + y).subs({x: $int, y: $finite}), Eq(x, $small), x > $small, Abs(-$int), floor($finite), log($hundred))
print(discrete_log(101, $positive, 2) if 0 else n_order(2, 2 * $positive + 1), crt([3, 5, 7], [$small % 3, $small % 5, $small % 7]), continued_fraction(Rational($int, $positive)), sqrt_mod($small, 101), primitive_root(101), jacobi_symbol($small, 15))
print(dsolve(Function('f')(x).diff(x) - $positive * Function('f')(x)), nsolve(x ** 3 - $positive, 2), Interval(0, $small) & Interval(2, 5), Piecewise((x, x > $small), (0, True)).subs(x, $small), real_roots(x ** 3 - $small * x), Point(0, $small).distance(Point($small, 1)))
print(mpmath.mp.pi, mpmath.quad(lambda t: t ** $small, [0, 1]), mpmath.mpf($finite), mpmath.zeta($small + 2), mpmath.nstr(mpmath.gamma($moderate), 12), mpmath.findroot(lambda t: t * t - $positive, 1))
print(reduce_inequalities(x ** 2 < $positive, x), symbols('a:$small'), Symbol('n', integer=True).is_integer, FiniteSet($small, $small, $small), diophantine(x * $positive + y * 3 - 1), lambdify(x, $xexpr)($finite), bernoulli($positive), harmonic($positive))
""",
    "networkx": r"""
g = nx.Graph(list(zip($perm, $perm)))\nprint(sorted(g.edges), nx.number_connected_components(g), sorted(dict(g.degree).items()), nx.density(g))
g = nx.path_graph($positive)\nprint(nx.shortest_path(g, 0, $small), nx.diameter(g), nx.average_shortest_path_length(g), nx.is_tree(g))
g = nx.DiGraph([(0, 1), (1, 2), ($small, 3)])\nprint(list(nx.topological_sort(g)), nx.descendants(g, 0), nx.pagerank(g), nx.is_directed_acyclic_graph(g))
g = nx.Graph()\ng.add_weighted_edges_from([(0, 1, $positive), (1, 2, $small), (0, 2, $finite)])\nprint(nx.minimum_spanning_tree(g).edges(data=True), nx.dijkstra_path(g, 0, 2), nx.adjacency_matrix(g).toarray())
g = nx.gnp_random_graph($positive, $unit, seed=$small)\nprint(g.number_of_edges(), nx.transitivity(g), nx.betweenness_centrality(g), nx.greedy_color(g), list(nx.find_cliques(g))[:3])
g = nx.complete_graph($small)\nprint(nx.maximum_flow_value(nx.DiGraph([(0, 1, {'capacity': $small})]), 0, 1), nx.clustering(g), list(nx.dfs_preorder_nodes(nx.cycle_graph($positive), 0)), nx.bipartite.is_bipartite(g))
""",
}
IMPORTS = {
    "numpy": "import numpy as np",
    "scipy": (
        "import numpy as np\nimport scipy.cluster.hierarchy, scipy.sparse.csgraph\n"
        "from scipy import cluster, constants, fft, integrate, interpolate, linalg, ndimage, optimize, signal, sparse\n"
        "from scipy import spatial, special, stats"
    ),
    "pandas": "import pandas as pd",
    "sympy": "import mpmath\nfrom sympy import *\nfrom sympy.ntheory import *\nfrom sympy.ntheory.modular import crt\nx, y = symbols('x y')",
    "networkx": "import networkx as nx",
}
