<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\Internal\BadWorker;
use Psr\Http\Message\ServerRequestFactoryInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Message\UploadedFileFactoryInterface;

/** Finds out which PSR-7 library the application has. */
final class Libraries
{
    /**
     * By package, the classes that are its PSR-17 factories; the first that is installed is taken.
     */
    private const KNOWN = [
        'nyholm/psr7' => ['Nyholm\Psr7\Factory\Psr17Factory'],
        'guzzlehttp/psr7' => ['GuzzleHttp\Psr7\HttpFactory'],
        'slim/psr7' => [
            'Slim\Psr7\Factory\ServerRequestFactory',
            'Slim\Psr7\Factory\StreamFactory',
            'Slim\Psr7\Factory\UploadedFileFactory',
        ],
        'laminas/laminas-diactoros' => [
            'Laminas\Diactoros\ServerRequestFactory',
            'Laminas\Diactoros\StreamFactory',
            'Laminas\Diactoros\UploadedFileFactory',
        ],
        'httpsoft/http-message' => [
            'HttpSoft\Message\ServerRequestFactory',
            'HttpSoft\Message\StreamFactory',
            'HttpSoft\Message\UploadedFileFactory',
        ],
    ];

    /**
     * @param list<object> $given factories of the application; they come first
     * @param class-string $type that requests must have
     * @throws BadWorker when there is none
     */
    public static function find(array $given, string $type): Library
    {
        $seen = [];
        foreach (self::sets($given) as $set) {
            $library = self::library($set);
            if ($library === null) {
                continue;
            }
            $class = $library->requestClass();
            if (\is_a($class, $type, true)) {
                return $library;
            }
            $seen[] = $class;
        }

        throw new BadWorker($seen === []
            ? self::nothingFound($given)
            : "The handler takes a `$type`, but PSR-7 requests here are " . \implode(' or ', $seen)
                . '. Let it take a Psr\Http\Message\ServerRequestInterface.');
    }

    /**
     * @param list<object> $given
     * @return iterable<list<object>>
     */
    private static function sets(array $given): iterable
    {
        foreach (self::KNOWN as $classes) {
            if (\class_exists($classes[0])) {
                yield [...$given, ...\array_map(static fn (string $class) => new $class(), $classes)];
            }
        }
        yield $given;
    }

    /** @param list<object> $factories */
    private static function library(array $factories): ?Library
    {
        $requests = self::first($factories, ServerRequestFactoryInterface::class);
        $streams = self::first($factories, StreamFactoryInterface::class);
        $files = self::first($factories, UploadedFileFactoryInterface::class);
        if ($requests === null || $streams === null || $files === null) {
            return null;
        }
        $any = new Factories($requests, $streams, $files);

        return match (\array_values(\array_unique([$requests::class, $streams::class, $files::class]))) {
            self::KNOWN['nyholm/psr7'] => new Constructed(
                'Nyholm\Psr7\ServerRequest',
                'Nyholm\Psr7\UploadedFile',
                $any,
            ),
            self::KNOWN['guzzlehttp/psr7'] => new Constructed(
                'GuzzleHttp\Psr7\ServerRequest',
                'GuzzleHttp\Psr7\UploadedFile',
                $any,
            ),
            self::KNOWN['slim/psr7'] => new Slim($any),
            default => $any,
        };
    }

    /** @param list<object> $factories */
    private static function first(array $factories, string $interface): ?object
    {
        foreach ($factories as $factory) {
            if ($factory instanceof $interface) {
                return $factory;
            }
        }

        return null;
    }

    /** @param list<object> $given */
    private static function nothingFound(array $given): string
    {
        $missing = $given === []
            ? 'no PSR-7 library is installed'
            : 'withFactories() got no factory for requests, streams or files';

        return "The handler takes a PSR-7 request, but $missing. Known are " . \implode(', ', \array_keys(self::KNOWN))
            . ': type `composer require nyholm/psr7`,'
            . ' or give the PSR-17 factories of another one to withFactories().';
    }
}
