<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use PhpParser\Node;
use PhpParser\Node\Stmt;
use PhpParser\NodeFinder;
use PhpParser\PrettyPrinter\Standard;

/** What a package promises: its public classes and functions with their signatures, one a line. */
final class Surface
{
    public static function describe(string $package): string
    {
        $lines = [];
        foreach (Sources::parsed($package) as $file => $statements) {
            if (!str_starts_with($file, 'Internal/')) {
                array_push($lines, ...self::ofFile($statements));
            }
        }

        return ltrim(implode("\n", $lines)) . "\n";
    }

    /**
     * @param list<Stmt> $statements
     * @return list<string>
     */
    private static function ofFile(array $statements): array
    {
        $finder = new NodeFinder();
        $lines = [];
        foreach ($finder->findInstanceOf($statements, Stmt\Function_::class) as $function) {
            $lines[] = '';
            $lines[] = 'function ' . $function->namespacedName . self::signature($function);
        }
        foreach ($finder->findInstanceOf($statements, Stmt\ClassLike::class) as $class) {
            array_push($lines, '', self::head($class), ...self::members($class));
        }

        return $lines;
    }

    private static function head(Stmt\ClassLike $class): string
    {
        $kind = match (true) {
            $class instanceof Stmt\Class_ => $class->isFinal() ? 'final class' : 'class',
            $class instanceof Stmt\Enum_ => 'enum',
            default => 'interface',
        };
        $parents = match (true) {
            $class instanceof Stmt\Class_ => [$class->extends, ...$class->implements],
            $class instanceof Stmt\Enum_ => $class->implements,
            default => $class->extends,
        };
        $resolved = static fn (Node\Name $name) => (string) $name->getAttribute('resolvedName');
        $names = array_map($resolved, array_filter($parents));

        return "$kind $class->namespacedName" . ($names === [] ? '' : ': ' . implode(', ', $names));
    }

    /** @return list<string> */
    private static function members(Stmt\ClassLike $class): array
    {
        $lines = [];
        foreach ($class->stmts as $member) {
            if ($member instanceof Stmt\ClassMethod && (string) $member->name === '__construct') {
                array_push($lines, ...self::promoted($member));
            }
            if ($member instanceof Stmt\EnumCase) {
                $lines[] = '    ' . self::code($member);
                continue;
            }
            $hidden = str_contains((string) $member->getDocComment()?->getText(), '@internal');
            if ($hidden || !method_exists($member, 'isPublic') || !$member->isPublic()) {
                continue;
            }
            if ($member instanceof Stmt\Property) {
                $lines[] = '    ' . self::code($member);
            } elseif ($member instanceof Stmt\ClassMethod && !self::isMagic($member)) {
                $static = $member->isStatic() ? 'static ' : '';
                $lines[] = "    {$static}function $member->name" . self::signature($member);
            }
        }

        return $lines;
    }

    /** @return list<string> properties that a constructor declares */
    private static function promoted(Stmt\ClassMethod $constructor): array
    {
        $lines = [];
        foreach ($constructor->params as $parameter) {
            if ($parameter->flags & Stmt\Class_::MODIFIER_PUBLIC) {
                $property = clone $parameter;
                $property->default = null;
                $lines[] = '    ' . self::code($property);
            }
        }

        return $lines;
    }

    /** Not what people call. */
    private static function isMagic(Stmt\ClassMethod $method): bool
    {
        return in_array((string) $method->name, ['__get', '__isset', '__debugInfo'], true);
    }

    private static function signature(Node\FunctionLike $function): string
    {
        $parameters = implode(', ', array_map(self::code(...), $function->getParams()));
        $type = $function->getReturnType();

        return "($parameters)" . ($type === null ? '' : ': ' . self::code($type));
    }

    /** In one line, without comments. */
    private static function code(Node $node): string
    {
        $node = clone $node;
        $node->setAttribute('comments', []);

        return rtrim((string) preg_replace('/\s+/', ' ', (new Standard())->prettyPrint([$node])), ';');
    }
}
