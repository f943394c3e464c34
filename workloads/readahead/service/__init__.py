"""A server of a genotype matrix as a PLINK .bed file, decoded ahead of its reader."""
