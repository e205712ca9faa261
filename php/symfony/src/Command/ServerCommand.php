<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Command;

use Symfony\Component\Console\Command\Command;
use Symfony\Component\Console\Input\InputInterface;
use Symfony\Component\Console\Output\OutputInterface;

/** A command that the server's binary carries out, in the folder of the project. */
final class ServerCommand extends Command
{
    /** What PHP's child says that has no program to become. */
    private const NOT_FOUND = 127;

    /** @param list<string> $arguments of the binary */
    public function __construct(
        string $name,
        string $description,
        private readonly array $arguments,
        private readonly string $folder,
    ) {
        parent::__construct($name);
        $this->setDescription($description);
    }

    protected function execute(InputInterface $input, OutputInterface $output): int
    {
        if (!\is_file("$this->folder/pronghorn.yaml") && !\is_file("$this->folder/.rr.yaml")) {
            $output->writeln("<error>There is no $this->folder/pronghorn.yaml: `pronghorn init` writes one.</error>");

            return self::FAILURE;
        }
        // Its streams are those of the console, so that a person sees it as it is.
        $command = [(string) (\getenv('PRONGHORN_BINARY') ?: 'pronghorn'), ...$this->arguments];
        $server = @\proc_open($command, [\STDIN, \STDOUT, \STDERR], $pipes, $this->folder);
        $code = $server === false ? self::NOT_FOUND : $this->follow($server);
        if ($code === self::NOT_FOUND) {
            $output->writeln(
                "<error>`$command[0]` can't be started. Install the server, or name its binary by the variable"
                    . ' PRONGHORN_BINARY.</error>'
            );

            return self::FAILURE;
        }

        return $code;
    }

    /**
     * Hands signals on to it: this process ends with it.
     *
     * @param resource $server
     */
    private function follow($server): int
    {
        if (\function_exists('pcntl_signal')) {
            \pcntl_async_signals(true);
            foreach ([\SIGTERM, \SIGHUP, \SIGUSR2] as $signal) {
                \pcntl_signal($signal, static fn (int $number): bool => \proc_terminate($server, $number));
            }
            // A terminal sends it to both.
            \pcntl_signal(\SIGINT, \SIG_IGN);
        }

        return \proc_close($server);
    }
}
