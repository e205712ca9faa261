<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support\Kept;

class Ancestor
{
    public static int $count = 1;
    public array $list = [1, [2]];
    protected ?object $service = null;
    private string $secret = 'ancestor';

    public function change(object $service): void
    {
        $this->list[1][] = 3;
        $this->list['key'] = $this;
        $this->service = $service;
        $this->secret = 'changed';
        self::$count++;
    }

    public function look(): array
    {
        return [$this->list, $this->service, $this->secret];
    }
}
