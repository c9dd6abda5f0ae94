// Package sqlshelf keeps what senders wait for in a PostgreSQL database that
// several processes share: what package shelf keeps in files, by the same
// rules, with the time of the database.
//
//	results       the entry of each delivery, with its digest
//	result_usage  one row: count and bytes of all
//	result_key    one row: the key that poll secrets are made from
//
// Who puts, ends, evicts or expires takes the row of result_usage first, so
// that one does so after the other.
package sqlshelf
