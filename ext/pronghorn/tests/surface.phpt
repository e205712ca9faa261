--TEST--
Functions, classes and constants
--EXTENSIONS--
pronghorn
--FILE--
<?php
function signature(ReflectionFunctionAbstract $function): string
{
    $parameters = array_map(
        fn (ReflectionParameter $p) => $p->getType() . ($p->isVariadic() ? ' ...$' : ' $') . $p->getName(),
        $function->getParameters(),
    );

    return $function->getName() . '(' . implode(', ', $parameters) . ')'
        . ($function->hasReturnType() ? ": {$function->getReturnType()}" : '') . "\n";
}

foreach (get_extension_funcs('pronghorn') as $name) {
    echo signature(new ReflectionFunction($name));
}
foreach ([Pronghorn\Internal\NativeProperties::class, Pronghorn\Internal\NativeStatics::class] as $class) {
    foreach ((new ReflectionClass($class))->getMethods() as $method) {
        echo $method->class, '::', signature($method);
    }
}
var_dump(Pronghorn\Internal\EXTENSION_API);
var_dump(is_subclass_of(Pronghorn\DeadlineExceeded::class, Error::class));
ob_start();
phpinfo(INFO_MODULES);
preg_match('/^Shared memory => .*$/m', ob_get_clean(), $line);
echo $line[0], "\n";
?>
--EXPECT--
Pronghorn\Internal\ring_attach(int $memory, int $page, int $bell, int $server, int $output, int $look_after, object $http, object $raw, object $grpc): ?string
Pronghorn\Internal\zygote_serve(int $control, bool $is_warm): void
Pronghorn\Internal\ring_next(): object|string|null
Pronghorn\Internal\ring_serve(?callable $http, ?callable $raw, ?callable $grpc, callable $failed, object $output, object $response): object|array|string|null
Pronghorn\Internal\ring_peek(): ?string
Pronghorn\Internal\ring_reply(int $call, int $status, array $headers, string $body, int $flags, bool $more): bool
Pronghorn\Internal\ring_message(int $kind, int $call, int $flags, int $small, string $context, string $body, bool $more): bool
Pronghorn\Internal\ring_ask(int $number, string $method, string $argument): ?bool
Pronghorn\Internal\ring_answer(int $number): array|string|null
Pronghorn\Internal\ring_write(string $bytes): bool
Pronghorn\Internal\native_headers(?string $fields, string $host, int $count): ?array
Pronghorn\Internal\until_exit(callable $function, mixed ...$arguments): ?array
Pronghorn\Internal\places_seen(): array
Pronghorn\Internal\printed_watch(object $output, object $response): void
Pronghorn\Internal\printed_look_away(): void
Pronghorn\Internal\printed_take(): string
Pronghorn\Internal\printed_close(int $above): void
Pronghorn\Internal\printed_settle(): int
Pronghorn\Internal\requests_take_over(bool $front, callable $form, object $output, object $response): void
Pronghorn\Internal\reset_keep(): void
Pronghorn\Internal\reset_again(): bool
Pronghorn\Internal\reset_let_go(): void
Pronghorn\Internal\leaks_watch(int $every, bool $settings): void
Pronghorn\Internal\leaks_look(string $route): array
Pronghorn\Internal\leaks_collect(): array
Pronghorn\Internal\request_begin(object $exchange): void
Pronghorn\Internal\request_serve(object $exchange, callable $handler): array
Pronghorn\Internal\request_end(): void
Pronghorn\Internal\request_last(callable $tell): bool
Pronghorn\Internal\NativeProperties::__construct(array $objects)
Pronghorn\Internal\NativeProperties::restore(): bool
Pronghorn\Internal\NativeStatics::__construct(array $of, array $without)
Pronghorn\Internal\NativeStatics::objects(): array
Pronghorn\Internal\NativeStatics::restore(): bool
int(18)
bool(true)
Shared memory => not attached
