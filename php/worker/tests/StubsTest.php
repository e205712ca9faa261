<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;

final class StubsTest extends TestCase
{
    /** @requires extension pronghorn */
    public function testAnalysersKnowWhatTheExtensionHasForApplications(): void
    {
        $stubs = (string) file_get_contents(__DIR__ . '/../stubs/extension.php');
        $classes = (new \ReflectionExtension('pronghorn'))->getClassNames();
        // Those of the cache are behind its package.
        $classes = preg_grep('/^Pronghorn.[^\\\\]+$/', $classes);
        self::assertNotEmpty($classes);
        foreach ($classes as $class) {
            $parent = get_parent_class($class);
            self::assertStringContainsString('class ' . substr($class, 10) . " extends \\$parent\n", $stubs);
        }
    }
}
