<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PhpParser\Node;
use PhpParser\Node\Stmt;
use PhpParser\NodeFinder;

final class SourceTest extends SourceTestCase
{
    protected static function package(): string
    {
        return dirname(__DIR__);
    }

    /**
     * Other packages share the namespace, and tests that run with them would not notice.
     *
     * @dataProvider files
     * @param list<Stmt> $statements
     */
    public function testNoFileUsesAClassOfAPackageAboveThisOne(string $file, array $statements): void
    {
        $foreign = [];
        foreach ((new NodeFinder())->findInstanceOf($statements, Node\Name::class) as $name) {
            $class = (string) $name->getAttribute('resolvedName', $name);
            $isNamespace = $name->getAttribute('parent') instanceof Stmt\Namespace_;
            if (!$isNamespace && str_starts_with($class, 'Pronghorn\\')) {
                $path = dirname(__DIR__) . '/src/' . strtr(substr($class, 10), '\\', '/') . '.php';
                if (!is_file($path)) {
                    $foreign[] = "$class in line {$name->getStartLine()}";
                }
            }
        }
        self::assertSame([], $foreign);
    }
}
