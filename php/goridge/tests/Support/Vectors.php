<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

/** The byte vectors that the server's tests read as well. */
final class Vectors
{
    /**
     * @return iterable<string, array{array<string, mixed>}> a data set for each vector, by its name
     */
    public static function named(string $file, string $list): iterable
    {
        $path = __DIR__ . "/../../../../vectors/$file.json";
        foreach (json_decode((string) file_get_contents($path), true, 512, JSON_THROW_ON_ERROR)[$list] as $vector) {
            yield $vector['name'] => [$vector];
        }
    }
}
