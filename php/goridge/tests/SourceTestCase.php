<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PhpParser\Node;
use PhpParser\Node\Expr;
use PhpParser\Node\Stmt;
use PhpParser\NodeFinder;
use PHPUnit\Framework\TestCase;
use Pronghorn\Tests\Support\Sources;
use Pronghorn\Tests\Support\Surface;

/** Rules for the `src` of a package that no sniff knows. */
abstract class SourceTestCase extends TestCase
{
    /** Forbidden syntax that a file may have, by its path. */
    protected const ALLOWED = [];
    /** Superglobals that a file may touch, by its path. */
    protected const SUPERGLOBALS_ALLOWED = [];

    /** What would print into the protocol, end the process or reach for globals. */
    private const FORBIDDEN = [
        Stmt\Echo_::class, Stmt\InlineHTML::class, Stmt\Global_::class, Stmt\Goto_::class,
        Expr\Print_::class, Expr\Exit_::class, Expr\Eval_::class, Expr\ShellExec::class,
    ];
    private const SUPERGLOBALS = [
        'GLOBALS', '_SERVER', '_GET', '_POST', '_FILES', '_COOKIE', '_SESSION', '_REQUEST', '_ENV',
    ];
    private const FUNCTIONS = [
        'var_dump', 'var_export', 'print_r', 'printf', 'vprintf', 'readfile', 'passthru', 'phpinfo', 'header', 'sleep',
        'usleep',
    ];

    /** The package's own directory. */
    abstract protected static function package(): string;

    public function testTheSurfaceIsAsPromised(): void
    {
        self::assertSame(
            file_get_contents(static::package() . '/tests/surface.txt'),
            Surface::describe(static::package()),
            'The public surface has changed. If it should: php php/goridge/tests/surface.php, and a line in the'
                . ' changelog.',
        );
    }

    /**
     * @dataProvider files
     * @param list<Stmt> $statements
     */
    public function testNothingPrintsEndsOrReadsGlobals(string $file, array $statements): void
    {
        $forbidden = array_diff(self::FORBIDDEN, static::ALLOWED[$file] ?? []);
        $superglobals = array_diff(self::SUPERGLOBALS, static::SUPERGLOBALS_ALLOWED[$file] ?? []);
        $found = (new NodeFinder())->find($statements, static fn (Node $node) =>
            in_array($node::class, $forbidden, true)
            || $node instanceof Expr\Variable && in_array($node->name, $superglobals, true)
            || $node instanceof Expr\FuncCall && $node->name instanceof Node\Name
                && in_array($node->name->toLowerString(), self::FUNCTIONS, true));

        self::assertSame([], self::lines($found));
    }

    /**
     * @dataProvider files
     * @param list<Stmt> $statements
     */
    public function testEveryFileIsStrictAndEveryClassFinal(string $file, array $statements): void
    {
        $first = $statements[0];
        self::assertInstanceOf(Stmt\Declare_::class, $first);
        self::assertSame('strict_types', (string) $first->declares[0]->key);

        foreach ((new NodeFinder())->findInstanceOf($statements, Stmt\Class_::class) as $class) {
            self::assertTrue($class->isFinal() || $class->isAbstract(), "$class->name is not final");
        }
    }

    /**
     * @dataProvider files
     * @param list<Stmt> $statements
     */
    public function testFunctionsAreCalledByTheirFullName(string $file, array $statements): void
    {
        // Else PHP looks into the namespace first, at every call.
        $found = (new NodeFinder())->find($statements, static fn (Node $node) =>
            ($node instanceof Expr\FuncCall && $node->name instanceof Node\Name && !$node->name->isFullyQualified())
            || ($node instanceof Expr\ConstFetch && !$node->name->isFullyQualified()
                && !in_array($node->name->toLowerString(), ['true', 'false', 'null'], true)));

        self::assertSame([], self::lines($found));
    }

    /** @return iterable<string, array{string, list<Stmt>}> */
    public static function files(): iterable
    {
        foreach (Sources::parsed(static::package()) as $file => $statements) {
            yield $file => [$file, $statements];
        }
    }

    /**
     * @param list<Node> $nodes
     * @return list<string>
     */
    private static function lines(array $nodes): array
    {
        return array_map(static fn (Node $node) => $node->getType() . ' in line ' . $node->getStartLine(), $nodes);
    }
}
