<?php

declare(strict_types=1);

namespace Pronghorn\Grpc\Internal;

use Pronghorn\ClientGone;
use Pronghorn\Grpc\Context;
use Pronghorn\Grpc\Failure;
use Pronghorn\Grpc\Receives;
use Pronghorn\Grpc\Status;
use Pronghorn\GrpcCall;

/** A method of a service, and how its parameters are filled. */
final class Method
{
    /** How RoadRunner's package calls the context. */
    private const OFFICIAL = 'Spiral\RoadRunner\GRPC\ContextInterface';
    private const OFFICIAL_CLASS = 'Spiral\RoadRunner\GRPC\Context';
    private const OFFICIAL_HEADERS = 'Spiral\RoadRunner\GRPC\ResponseHeaders';
    private const OFFICIAL_TRAILERS = 'Spiral\RoadRunner\GRPC\ResponseTrailers';

    private const CONTEXT = 0;
    private const OFFICIAL_CONTEXT = 1;
    private const MESSAGE = 2;
    private const STREAM = 3;

    private readonly bool $wantsContext;
    private readonly bool $wantsOfficial;

    /**
     * @param \Closure $function the method, bound to its service
     * @param list<self::*> $parameters
     * @param ?class-string $message
     */
    private function __construct(
        private readonly \Closure $function,
        private readonly array $parameters,
        private readonly ?string $message,
    ) {
        $this->wantsContext = \in_array(self::CONTEXT, $parameters, true);
        $this->wantsOfficial = \in_array(self::OFFICIAL_CONTEXT, $parameters, true);
    }

    /**
     * @param \ReflectionMethod $declared that of the service's interface, or the method itself
     * @throws \LogicException when its parameters are none of a gRPC method
     */
    public static function of(object $service, \ReflectionMethod $method, \ReflectionMethod $declared): self
    {
        $parameters = [];
        $message = null;
        foreach ($method->getParameters() as $at => $parameter) {
            $type = (string) $parameter->getType();
            // PHP gives a method the types of an interface, and not its attributes.
            $receives = $parameter->getAttributes(Receives::class)[0]
                ?? ($declared->getParameters()[$at] ?? null)?->getAttributes(Receives::class)[0]
                ?? null;
            if ($receives !== null) {
                $parameters[] = self::STREAM;
                $message = $receives->newInstance()->message;
            } elseif ($type === Context::class) {
                $parameters[] = self::CONTEXT;
            } elseif ($type === self::OFFICIAL) {
                $parameters[] = self::OFFICIAL_CONTEXT;
            } elseif (\class_exists($type) && \method_exists($type, 'mergeFromString')) {
                $parameters[] = self::MESSAGE;
                $message = $type;
            } else {
                $name = $service::class . '::' . $method->getName();
                throw new \LogicException(
                    "Parameter \${$parameter->getName()} of $name() is neither a message nor a context. A stream of"
                        . ' the client is `#[Receives(Message::class)] iterable $messages`.'
                );
            }
        }

        return new self($method->getClosure($service), $parameters, $message);
    }

    public function answer(GrpcCall $call): void
    {
        $context = $this->wantsContext ? new Context($call) : null;
        $official = $this->wantsOfficial ? self::official($call) : null;
        try {
            $result = ($this->function)(...$this->arguments($call, $context, $official));
            $this->sendAll($call, $official, $result);
            $call->end(0, '', '', self::trailers($context, $official));
        } catch (ClientGone) {
            // Nobody is there who would read a status.
            $call->end(Status::CANCELLED);
        } catch (\Throwable $thrown) {
            self::failed($call, $thrown, self::trailers($context, $official));
        }
    }

    /** @return list<mixed> */
    private function arguments(GrpcCall $call, ?Context $context, ?object $official): array
    {
        $arguments = [];
        foreach ($this->parameters as $kind) {
            $arguments[] = match ($kind) {
                self::MESSAGE => $this->message($call),
                self::CONTEXT => $context,
                self::OFFICIAL_CONTEXT => $official,
                self::STREAM => $this->stream($call),
            };
        }

        return $arguments;
    }

    private function sendAll(GrpcCall $call, ?object $official, mixed $result): void
    {
        if ($result instanceof \Traversable && !\method_exists($result, 'serializeToString')) {
            foreach ($result as $message) {
                $this->send($call, $official, $message);
            }
        } else {
            $this->send($call, $official, $result);
        }
    }

    private function send(GrpcCall $call, ?object $official, mixed $message): void
    {
        if ($official !== null) {
            self::passOn($official, $call);
        }
        $call->send($this->text($message));
    }

    /** @param array<string, list<string>> $trailers */
    private static function failed(GrpcCall $call, \Throwable $thrown, array $trailers): void
    {
        if ($thrown instanceof Failure) {
            self::fail($call, $thrown, $thrown->details, $trailers);
        } elseif (\is_a($thrown, 'Spiral\RoadRunner\GRPC\Exception\GRPCExceptionInterface')) {
            self::fail($call, $thrown, $thrown->getDetails(), $trailers);
        } else {
            throw $thrown;
        }
    }

    private function message(GrpcCall $call): object
    {
        $bytes = $call->message() ?? throw new Failure(Status::INTERNAL, 'The client sent no message.');

        return $this->parse($bytes);
    }

    /** @return \Generator<int, object> */
    private function stream(GrpcCall $call): \Generator
    {
        foreach ($call->messages() as $bytes) {
            yield $this->parse($bytes);
        }
    }

    private function parse(string $bytes): object
    {
        $message = new $this->message();
        try {
            $message->mergeFromString($bytes);
        } catch (\Exception $wrong) {
            throw new Failure(Status::INTERNAL, "The message is no {$this->message}.", previous: $wrong);
        }

        return $message;
    }

    private function text(mixed $message): string
    {
        if (!\is_object($message) || !\method_exists($message, 'serializeToString')) {
            $method = new \ReflectionFunction($this->function);
            $service = $method->getClosureThis();
            $name = $service === null ? $method->getName() : $service::class . '::' . $method->getName();
            throw new \TypeError("$name() returned " . \get_debug_type($message) . ', which is no message.');
        }

        return $message->serializeToString();
    }

    /**
     * @param list<object> $details
     * @param array<string, list<string>> $trailers
     */
    private static function fail(GrpcCall $call, \Throwable $failure, array $details, array $trailers): void
    {
        $status = $failure->getCode();
        $status = \is_int($status) && $status > 0 && $status <= 16 ? $status : Status::UNKNOWN;
        $packed = $details === [] ? '' : Details::pack($status, $failure->getMessage(), $details);
        $call->end($status, $failure->getMessage(), $packed, $trailers);
    }

    /** The context that services of RoadRunner's generator take. */
    private static function official(GrpcCall $call): object
    {
        $values = $call->metadata;
        foreach ([self::OFFICIAL_HEADERS, self::OFFICIAL_TRAILERS] as $class) {
            if (\class_exists($class)) {
                $values[$class] = new $class();
            }
        }

        return new (self::OFFICIAL_CLASS)($values);
    }

    private static function passOn(object $official, GrpcCall $call): void
    {
        if ($call->hasBegun()) {
            return;
        }
        foreach ($official->getValue(self::OFFICIAL_HEADERS) ?? [] as $name => $value) {
            $call->header((string) $name, $value);
        }
    }

    /** @return array<string, list<string>> */
    private static function trailers(?Context $context, ?object $official): array
    {
        $trailers = $context?->trailers() ?? [];
        foreach ($official?->getValue(self::OFFICIAL_TRAILERS) ?? [] as $name => $value) {
            $trailers[(string) $name] ??= [$value];
        }

        return $trailers;
    }
}
