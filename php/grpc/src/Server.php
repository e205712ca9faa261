<?php

declare(strict_types=1);

namespace Pronghorn\Grpc;

use Pronghorn\Grpc\Internal\Method;
use Pronghorn\GrpcCall;

/**
 * Services in PHP. A method takes a message, or what a client streams, and a {@see Context} if it
 * wants one; it returns a message, or yields as many as it likes.
 *
 *     $server = new Server();
 *     $server->register('shop.v1.Orders', new Orders());
 *     (new Pronghorn\Worker())->onGrpc($server)->run();
 */
final class Server
{
    /** @var array<string, array<string, Method>> by service, and by method in lower case */
    private array $services = [];

    /**
     * Adds a service.
     *
     * @param string $name as in its `.proto` file, with the package; or the interface that
     *     `pronghorn grpc generate` or RoadRunner's generator has written, whose constant `NAME` it is
     * @throws \LogicException when a method takes something that is no message, or there is no such
     *     interface
     */
    public function register(string $name, object $service): static
    {
        $interface = \interface_exists($name) || \class_exists($name) ? new \ReflectionClass($name) : null;
        if ($interface === null && \str_contains($name, '\\')) {
            throw new \LogicException("There is no interface `$name`: is its name right, and is it loaded?");
        }
        $named = $interface?->getConstant('NAME');
        $methods = [];
        foreach (($interface ?? new \ReflectionObject($service))->getMethods(\ReflectionMethod::IS_PUBLIC) as $method) {
            if ($method->isStatic() || \str_starts_with($method->getName(), '__')) {
                continue;
            }
            // The interface may say less than the class, but for attributes.
            $own = new \ReflectionMethod($service, $method->getName());
            $methods[\strtolower($method->getName())] = Method::of($service, $own, $method);
        }
        $this->services[\is_string($named) ? $named : $name] = $methods;

        return $this;
    }

    /** Answers a call: what {@see \Pronghorn\Worker::onGrpc()} takes. */
    public function __invoke(GrpcCall $call): void
    {
        $method = $this->services[$call->service][\strtolower($call->method)] ?? null;
        if ($method === null) {
            $call->end(Status::UNIMPLEMENTED, $this->lacks($call->service, $call->method));

            return;
        }
        $method->answer($call);
    }

    private function lacks(string $service, string $method): string
    {
        $methods = $this->services[$service] ?? null;
        if ($methods === null) {
            return "unknown service $service" . self::near($service, \array_keys($this->services));
        }

        return "unknown method $method for service $service" . self::near($method, \array_keys($methods));
    }

    /**
     * The name that was probably registered for this one, if there is one.
     *
     * @param list<string> $known
     */
    private static function near(string $name, array $known): string
    {
        $last = static fn(string $name): string => \strtolower(\substr(\strrchr(".$name", '.'), 1));
        foreach ($known as $other) {
            // The package is what is forgotten.
            if (\levenshtein($last($name), $last($other)) <= 2) {
                return "; the worker has `$other`";
            }
        }

        return '';
    }
}
