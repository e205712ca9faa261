--TEST--
Outside of a worker exit is exit
--EXTENSIONS--
pronghorn
--FILE--
<?php
Pronghorn\Internal\until_exit(function () {
    echo "before\n";
    exit;
});
echo "after\n";
?>
--EXPECT--
before
