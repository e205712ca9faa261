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

/** Rules for `src` that no sniff knows. */
final class SourceTest extends TestCase
{
    /** What would print into the protocol, end the process or reach for globals; by file what is allowed there. */
    private const ALLOWED = [
        // The one place that ends a process: a worker that can't boot.
        'Internal/Boot.php' => [Expr\Exit_::class],
    ];
    private const FORBIDDEN = [
        Stmt\Echo_::class, Stmt\InlineHTML::class, Stmt\Global_::class, Stmt\Goto_::class,
        Expr\Print_::class, Expr\Exit_::class, Expr\Eval_::class, Expr\ShellExec::class,
    ];
    private const SUPERGLOBALS = [
        'GLOBALS', '_SERVER', '_GET', '_POST', '_FILES', '_COOKIE', '_SESSION', '_REQUEST', '_ENV',
    ];
    /** What clears them. */
    private const CLEARED = [
        'Internal/Superglobals.php' => ['_SERVER', '_GET', '_POST', '_FILES', '_COOKIE', '_REQUEST'],
        'Internal/Leftovers.php' => ['_SESSION'],
    ];
    private const FUNCTIONS = [
        'var_dump', 'var_export', 'print_r', 'printf', 'vprintf', 'readfile', 'passthru', 'phpinfo', 'header', 'sleep',
        'usleep',
    ];

    public function testTheSurfaceIsAsPromised(): void
    {
        self::assertSame(
            file_get_contents(__DIR__ . '/surface.txt'),
            Surface::describe(),
            'The public surface has changed. If that is meant: php tests/surface.php > tests/surface.txt, and a line in'
                . ' the changelog.',
        );
    }

    /**
     * @dataProvider files
     * @param list<Stmt> $statements
     */
    public function testNothingPrintsEndsOrReadsGlobals(string $file, array $statements): void
    {
        $forbidden = array_diff(self::FORBIDDEN, self::ALLOWED[$file] ?? []);
        $superglobals = array_diff(self::SUPERGLOBALS, self::CLEARED[$file] ?? []);
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
        foreach (Sources::parsed() as $file => $statements) {
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
