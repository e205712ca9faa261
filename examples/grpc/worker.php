<?php

// Answers gRPC. Start it from the repository's root with
//     pronghorn serve -c examples/grpc/pronghorn.yaml

declare(strict_types=1);

namespace Hello;

use Generator;
use Pronghorn\Grpc\Context;
use Pronghorn\Grpc\Failure;
use Pronghorn\Grpc\Receives;
use Pronghorn\Grpc\Server;
use Pronghorn\Grpc\Status;
use Pronghorn\Worker;

require __DIR__ . '/../../php/autoload.php';
require __DIR__ . '/messages.php';

final class Greeter
{
    public function greet(Name $name, Context $context): Greeting
    {
        if ($name->text === '') {
            throw new Failure(Status::INVALID_ARGUMENT, 'nobody is to be greeted');
        }
        $context->trailer('x-worker', (string) \getmypid());

        return new Greeting("Hello, $name->text!");
    }

    /** Each message is sent when it is yielded. */
    public function count(Name $name): Generator
    {
        for ($number = 1; $number <= 5; $number++) {
            yield new Greeting("$number, $name->text");
            \usleep(200_000);
        }
    }

    /** @param iterable<Name> $names */
    public function chat(#[Receives(Name::class)] iterable $names): Generator
    {
        foreach ($names as $name) {
            yield new Greeting("Hello, $name->text!");
        }
    }
}

$server = (new Server())->register('hello.v1.Greeter', new Greeter());
(new Worker())->onGrpc($server)->run();
