<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use PhpParser\Node;
use PhpParser\NodeTraverser;
use PhpParser\NodeVisitor\NameResolver;
use PhpParser\NodeVisitor\ParentConnectingVisitor;
use PhpParser\ParserFactory;

/** The files of a package as syntax trees. */
final class Sources
{
    /** @return iterable<string, list<Node\Stmt>> by path below `src`, names resolved */
    public static function parsed(string $package): iterable
    {
        $parser = (new ParserFactory())->create(ParserFactory::ONLY_PHP7);
        $folder = realpath("$package/src");
        $files = [];
        foreach (new \RecursiveIteratorIterator(new \RecursiveDirectoryIterator($folder)) as $file) {
            if ($file->getExtension() === 'php') {
                $files[substr($file->getPathname(), strlen($folder) + 1)] = $file->getPathname();
            }
        }
        ksort($files);
        foreach ($files as $name => $path) {
            $traverser = new NodeTraverser();
            $traverser->addVisitor(new NameResolver(null, ['replaceNodes' => false]));
            $traverser->addVisitor(new ParentConnectingVisitor());
            yield $name => $traverser->traverse($parser->parse((string) file_get_contents($path)));
        }
    }
}
